"""A decoder of 29 million parameters, to measure what saves memory.

  python -m launch.train --config=configs/memory_lab.py \\
      --config.data.path=PATH/corpus.txt --workdir=runs/memory_lab

Six pre-LN layers of width 512 with ReLU, sinusoids, an untied head and 10,000
entries of BPE, learnt from the training split alone (85, 10 and 5 % of the
text): 29,165,328 parameters. Weights begin as N(0, .02), those that end a
branch as N(0, .02 / sqrt(2 layers)).

The techniques, each alone and together: configs/experiments/memory_lab.py.
"""

from rnn_jax import config as config_lib

LAYERS = 6


def get_config():
  """Returns the config; data.path is the file."""
  config = config_lib.default('attention')

  config.data.source = 'text'
  config.data.path = 'corpus.txt'
  config.data.split_by = 'position'
  config.data.splits = (85, 10, 5)
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 10_000
  config.data.layout = 'stream'
  config.data.length = 512
  config.data.batch_size = 64

  config.model.layers = LAYERS
  config.model.width = 512
  config.model.mlp_width = 2048
  config.model.mlp = 'relu'
  config.model.norm = 'layer'
  config.model.biases = True
  config.model.positions = 'sinusoidal'
  config.model.embedding_scale = 0.02
  config.model.embedding_multiplier = 512**0.5  # else sinusoids drown it
  config.model.kernel_scale = 0.02
  config.model.branch_scale = (2 * LAYERS) ** -0.5
  config.cell.heads = 8
  config.cell.head_width = 64
  config.cell.window = 0
  config.cell.rotary = 0.0
  config.cell.biases = True

  config.optimizer.learning_rate = 1e-3
  config.schedule.warmup_steps = 100
  config.train.steps = 1000
  config.evaluate.every = 250
  config.sample.new_tokens = 100
  return config
