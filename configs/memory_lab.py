"""A decoder with 29 million parameters, to measure what saves memory.

  python -m launch.train --config=configs/memory_lab.py \\
      --config.data.path=PATH/corpus.txt --workdir=runs/memory_lab

Six pre-LN layers of width 512 with ReLU, sinusoidal positions, an untied head
and 10,000 BPE tokens, trained on the training split only (the splits are 85, 10
and 5 % of the text): 29,165,328 parameters. Weights are initialized from
N(0, .02), those at the end of a branch from N(0, .02 / sqrt(2 layers)).

configs/experiments/memory_lab.py measures the techniques, one by one and
combined.
"""

from rnn_jax import config as config_lib

LAYERS = 6


def get_config():
  """Returns the config; set data.path to the text file."""
  config = config_lib.default('attention', source='text', layout='stream')

  config.data.path = 'corpus.txt'
  config.data.split_by = 'position'
  config.data.splits = (85, 10, 5)
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 10_000
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
  config.model.embedding_multiplier = 512**0.5  # else the positions dominate
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
