"""Sentiment of film reviews, from scratch, with a head on pooled states.

  python -m launch.train --config=configs/rotten_tomatoes.py \\
      --config.data.path=PATH/train.jsonl \\
      --config.data.validation_path=PATH/validation.jsonl \\
      --workdir=runs/rotten_tomatoes
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config; data.path and data.validation_path are the files."""
  config = config_lib.default()

  config.task.name = 'classification'
  config.task.answer = 'pooled'
  config.task.pooling = 'concat'

  config.data.source = 'jsonl'
  config.data.path = 'train.jsonl'
  config.data.validation_path = 'validation.jsonl'
  config.data.splits = (100, 0, 0)
  config.data.classes = ('negative', 'positive')
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 4096
  config.data.layout = 'packed'
  config.data.fit = 'best'
  config.data.length = 128
  config.data.batch_size = 16

  config.model.layers = 1
  config.model.width = 128
  config.model.dropout = 0.3
  config.cell.heads = 4
  config.cell.key_width = 16
  config.cell.value_width = 32
  config.cell.decay = 'head'
  config.recurrence.chunk_length = 64

  config.optimizer.learning_rate = 2e-3
  config.optimizer.weight_decay = 0.1
  config.schedule.warmup_steps = 50
  config.schedule.final_learning_rate = 1e-5

  config.train.steps = 1000
  config.train.log_every = 50
  config.train.checkpoint_every = 500
  config.evaluate.every = 100
  config.evaluate.batch_size = 64
  config.sample.new_tokens = 0
  return config
