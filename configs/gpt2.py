"""GPT-2's Transformers, to fine-tune from a checkpoint or train from scratch.

  python -m launch.convert --input=FOLDER --format=hf \\
      --config=configs/gpt2.py:small --workdir=runs/gpt2
  python -m launch.train --config=configs/gpt2.py:small --workdir=runs/gpt2

FOLDER is a model folder of Hugging Face's transformers (docs/interop.md). The
four sizes are the published ones; 'small' has 124,439,808 parameters. Rows have
1024 tokens, the number of learned positions. The default text is the sources of
Python's standard library; change data.source and data.path for another.
"""

from rnn_jax import config as config_lib

SIZES = {  # width, heads, layers
  'small': (768, 12, 12),
  'medium': (1024, 16, 24),
  'large': (1280, 20, 36),
  'xl': (1600, 25, 48),
}


def get_config(size='small'):
  """Returns the config of a size."""
  if size not in SIZES:
    raise ValueError(f'size={size!r}: choose one of {[*SIZES]}')
  width, heads, layers = SIZES[size]
  config = config_lib.default('attention', layout='packed')

  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 50257
  config.data.length = 1024
  config.data.batch_size = 8

  config.model.layers = layers
  config.model.width = width
  config.model.mlp_width = 4 * width
  config.model.mlp = 'gelu_tanh'
  config.model.norm = 'layer'
  config.model.biases = True
  config.model.positions = 'learned'
  config.model.max_positions = 1024
  config.model.embedding_scale = 0.02
  config.model.kernel_scale = 0.02
  config.model.branch_scale = (2 * layers) ** -0.5
  config.model.dropout = 0.1
  config.model.dropout_shape = 'elements'
  config.model.tied = True
  config.model.tied_multiplier = 1.0
  config.cell.heads = heads
  config.cell.head_width = width // heads
  config.cell.window = 0
  config.cell.rotary = 0.0
  config.cell.biases = True

  config.optimizer.learning_rate = 3e-5
  config.optimizer.b2 = 0.95
  config.optimizer.weight_decay = 0.1
  config.schedule.warmup_steps = 100
  config.schedule.final_learning_rate = 3e-6
  config.train.steps = 1000
  config.train.accumulate = 8
  config.evaluate.every = 250
  config.evaluate.batch_size = 8
  return config
