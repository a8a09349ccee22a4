"""Conversation: each turn is predicted from all turns before it.

  python -m launch.train --config=configs/daily_dialog.py \\
      --config.data.path=PATH/train.jsonl \\
      --config.data.validation_path=PATH/validation.jsonl \\
      --workdir=runs/daily_dialog
  python -m launch.generate --chat --workdir=runs/daily_dialog
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config; set data.path and data.validation_path to the files."""
  config = config_lib.default(task='dialogue', source='jsonl', layout='packed')

  config.task.turns = 'all'
  config.task.min_reply_tokens = 8
  config.task.reply_temperature = 0.5

  config.data.field = 'turns'
  config.data.path = 'train.jsonl'
  config.data.validation_path = 'validation.jsonl'
  config.data.splits = (100, 0, 0)
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 2048
  config.data.fit = 'best'
  config.data.length = 384
  config.data.batch_size = 8

  config.model.layers = 2
  config.model.unroll = 2
  config.model.width = 192
  config.model.mlp_width = 384
  config.model.embedding_scale = 0.1
  config.model.dropout = 0.1
  config.cell.heads = 4
  config.cell.key_width = 16
  config.cell.value_width = 48
  config.cell.decay = 'head'

  config.optimizer.learning_rate = 2e-3
  config.optimizer.weight_decay = 0.1
  config.schedule.warmup_steps = 50
  config.schedule.final_learning_rate = 1e-5

  config.train.steps = 1200
  config.train.precision = 'bfloat16_operands'
  config.train.log_every = 25
  config.train.checkpoint_every = 600
  config.evaluate.every = 200
  config.evaluate.batch_size = 16
  config.evaluate.length = 512
  config.sample.prompt = 'Hello , how are you today ?'
  config.sample.new_tokens = 50
  return config
