"""Sentiment of film reviews, from scratch, with a head on pooled states.

The logits start at half the naive Bayes evidence; the model learns the rest. It
reaches a validation accuracy of .778 in about a minute on 2 cores, nearly that
of linear classifiers of words (docs/results.md).

  python -m launch.train --config=configs/rotten_tomatoes.py \\
      --config.data.path=PATH/train.jsonl \\
      --config.data.validation_path=PATH/validation.jsonl \\
      --workdir=runs/rotten_tomatoes
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config; set data.path and data.validation_path to the files."""
  config = config_lib.default(task='classification', source='jsonl')

  config.task.answer = 'pooled'
  config.task.pooling = 'mean'
  config.task.evidence = 0.5

  config.data.path = 'train.jsonl'
  config.data.validation_path = 'validation.jsonl'
  config.data.splits = (100, 0, 0)
  config.data.classes = ('negative', 'positive')
  config.data.tokenizer = 'bpe'
  config.data.pre_tokenizer = 'whitespace'
  config.data.vocabulary = 12288
  config.data.bucketing = 'least_padding'
  config.data.buckets = 3
  config.data.length = 72
  config.data.batch_size = 64

  # Few texts, many words: start from small weights and regularize strongly,
  # or the model memorizes the training set.
  config.model.layers = 1
  config.model.width = 128
  config.model.embedding_scale = 0.02
  config.model.branch_scale = 0.02
  config.model.dropout = 0.5
  config.model.token_dropout = 0.5
  config.cell.heads = 4
  config.cell.key_width = 16
  config.cell.value_width = 32
  config.cell.decay = 'head'
  config.optimizer.learning_rate = 5e-4
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-5

  config.train.steps = 700
  config.train.log_every = 50
  config.train.checkpoint_every = 350
  config.evaluate.every = 50
  config.evaluate.batch_size = 64
  config.evaluate.criterion = 'errors'
  config.sample.new_tokens = 0
  return config
