"""ChatGoT's Transformers of characters: tiny, small, medium and gpt2 sizes.

  python -m launch.train --config=configs/chatgot.py:small \\
      --config.data.path=PATH/input.txt --workdir=runs/chatgot

Pre-LN blocks with GELU, sinusoids on an embedding times sqrt(D), an untied
head with bias. At 89 characters 'small' has 3,205,209 parameters and 'gpt2'
85,192,793. A character sees all of its window of 256, and windows follow one
another without overlap (the original's begin every 128).

The rate is what trains the small size from scratch; the original has 5e-5.
What each way to save memory or time buys: configs/experiments/roadmap.py.
"""

from rnn_jax import config as config_lib

SIZES = {  # width, heads, width of the MLP, layers
  'tiny': (128, 2, 512, 2),
  'small': (256, 4, 1024, 4),
  'medium': (384, 6, 1536, 6),
  'gpt2': (768, 12, 3072, 12),
}


def get_config(size='small'):
  """Returns the config of a size; data.path is the file."""
  if size not in SIZES:
    raise ValueError(f'size={size!r}: choose one of {[*SIZES]}')
  width, heads, mlp_width, layers = SIZES[size]
  config = config_lib.default('attention')

  config.data.source = 'text'
  config.data.path = 'input.txt'
  config.data.split_by = 'position'
  config.data.splits = (90, 10, 0)
  config.data.tokenizer = 'characters'
  config.data.vocabulary = 89  # what a profile, which reads no text, assumes
  config.data.layout = 'stream'
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
