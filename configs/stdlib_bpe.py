"""A language model of Python's standard library, in byte pairs.

    python -m launch.train --config=configs/stdlib_bpe.py \\
        --workdir=runs/stdlib_bpe

A token is about three bytes, so that as many steps read three times as much
text: on unseen files 1.51 bits per byte after five minutes on 2 cores, where
stdlib_bytes has 1.82 and gzip 1.86, and 1.29 after 19 minutes, with
--config.train.steps=6000; xz has 1.49 (docs/results.md).
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config."""
  config = config_lib.default(layout='stream')

  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 2048
  config.data.carry_state = True
  config.data.segment_bytes = 8192
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

  config.optimizer.name = 'muon'
  config.optimizer.learning_rate = 6e-3
  config.schedule.warmup_steps = 100
  config.schedule.final_learning_rate = 1e-4

  config.train.steps = 1500
  config.train.log_every = 50
  config.train.checkpoint_every = 500
  config.evaluate.every = 500
  config.evaluate.batch_size = 32

  config.sample.prompt = 'def '
  return config
