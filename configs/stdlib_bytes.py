"""A byte-level language model of Python's standard library.

    python -m launch.train --config=configs/stdlib_bytes.py \\
        --workdir=runs/stdlib_bytes

Every machine has this text; nothing is downloaded. Files are split as wholes,
90 / 5 / 5 per cent, so that training reads no part of a held-out file.
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config."""
  config = config_lib.default(layout='stream')

  config.data.carry_state = True
  config.data.segment_tokens = 8192
  config.data.length = 256
  config.data.batch_size = 8
  config.data.workers = 0

  config.model.layers = 3
  config.model.unroll = 3
  config.model.width = 192
  config.model.mlp_width = 384
  config.cell.heads = 4
  config.cell.key_width = 16
  config.cell.value_width = 48
  config.cell.decay = 'head'

  config.optimizer.learning_rate = 3e-3
  config.schedule.warmup_steps = 100
  config.schedule.final_learning_rate = 1e-4

  config.train.steps = 1500
  config.train.log_every = 50
  config.train.checkpoint_every = 500
  config.evaluate.every = 500
  config.evaluate.batch_size = 32

  config.sample.prompt = 'def '
  return config
