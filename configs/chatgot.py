"""ChatGoT's character-level Transformers: tiny, small, medium and gpt2 sizes.

  python -m launch.train --config=configs/chatgot.py:small \\
      --config.data.path=PATH/input.txt --workdir=runs/chatgot

Pre-LN blocks with GELU, sinusoidal positions added to the embedding times
sqrt(D), and an untied head with bias. With 89 characters, 'small' has 3,205,209
parameters and 'gpt2' 85,192,793. Each character attends within its window of
256; windows don't overlap. The original's start every 128 characters, as with
--config.data.layout=packed --config.data.stride=128.

The learning rate trains the small size from scratch; the original uses 5e-5.
configs/experiments/roadmap.py compares the ways to save memory or time.
"""

from rnn_jax import config as config_lib

SIZES = {  # width, heads, width of the MLP, layers
  'tiny': (128, 2, 512, 2),
  'small': (256, 4, 1024, 4),
  'medium': (384, 6, 1536, 6),
  'gpt2': (768, 12, 3072, 12),
}


def get_config(size='small'):
  """Returns the config of a size; set data.path to the text file."""
  if size not in SIZES:
    raise ValueError(f'size={size!r}: choose one of {[*SIZES]}')
  width, heads, mlp_width, layers = SIZES[size]
  config = config_lib.default('attention', source='text', layout='stream')

  config.data.path = 'input.txt'
  config.data.split_by = 'position'
  config.data.splits = (90, 10, 0)
  config.data.tokenizer = 'characters'
  config.data.vocabulary = 89  # for profiles, which read no text
  config.data.length = 256
  config.data.batch_size = 32

  config.model.layers = layers
  config.model.width = width
  config.model.mlp_width = mlp_width
  config.model.mlp = 'gelu'
  config.model.norm = 'layer'
  config.model.biases = True
  config.model.positions = 'sinusoidal'
  config.model.embedding_multiplier = width**0.5
  config.model.embedding_scale = 0.02
  config.model.dropout = 0.1
  config.model.dropout_shape = 'elements'
  config.cell.heads = heads
  config.cell.head_width = width // heads
  config.cell.window = 0
  config.cell.rotary = 0.0
  config.cell.biases = True

  config.optimizer.learning_rate = 5e-4
  config.schedule.warmup_steps = 100
  config.schedule.final_learning_rate = 5e-5
  config.train.steps = 1000
  config.evaluate.every = 250
  config.sample.prompt = '\n'
  config.sample.new_tokens = 200
  return config
