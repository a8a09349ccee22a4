"""A language model of Python's standard library in byte pairs: the default job.

    make train
    python -m launch.train --config=configs/stdlib_bpe.py \\
        --workdir=runs/stdlib_bpe

The files of configs/stdlib_bytes.py. A token is about three bytes, so that as
many steps read three times as much text. What counts in minutes is the number
of steps, so the model is narrow, has two layers and multiplies in bfloat16, and
that batches differ: a segment is one window, and the state is carried only
where the model is evaluated and used. Embeddings have a higher learning rate,
because most tokens are rare in a batch. docs/results.md has the steps to this
config.
"""

from configs import stdlib_bytes


def get_config():
  """Returns the config."""
  config = stdlib_bytes.get_config()
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 2048
  config.data.segment_tokens = 256

  config.model.layers = 2
  config.model.unroll = 2
  config.model.width = 128
  config.model.mlp_width = 256
  config.cell.preset = 'coupled'
  config.cell.decay = 'key'
  config.cell.value_width = 40
  config.cell.gate_bias = 1.0
  config.cell.gate_spread = 1.0

  config.optimizer.name = 'muon'
  config.optimizer.learning_rate = 6e-3
  config.optimizer.weight_decay = 0.1
  config.optimizer.multipliers = (('embedding/.*', 30.0),)
  config.optimizer.preconditioning = 'aol'
  config.optimizer.newton_schulz_steps = 3
  config.optimizer.newton_schulz_format = 'bfloat16'
  config.schedule.name = 'linear'
  config.schedule.final_learning_rate = 0.0

  config.train.precision = 'bfloat16_operands'
  config.train.steps = 3100
  config.train.checkpoint_every = 775
  config.evaluate.every = 775
  return config
