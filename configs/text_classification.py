"""The class of a text: a recurrence over its tokens, and a head on its states.

  python -m launch.train --config=configs/text_classification.py \\
      --workdir=runs/tickets
  python -m launch.evaluate --workdir=runs/tickets --split=test

That trains on samples/tickets.csv, 400 support tickets of 4 classes, in about a
minute on 2 cores, to a test accuracy of .90 (60 tickets). Your own texts:

  python -m launch.train --config=configs/text_classification.py \\
      --config.data.path=FILE.csv --workdir=runs/mine

The file has a column of texts and one of classes, 2 to 50 of them; their names
come from the file (docs/data.md). Other sources are jsonl, tfds:NAME, which
launch.prepare writes, and hf:NAME_OR_FOLDER, by --config.data.source. The sizes
are for some hundred to some ten thousand texts of up to 128 tokens;
--config.data.length changes that.
"""

import pathlib

from rnn_jax import config as config_lib

# In the folder of this file, wherever it is installed.
SAMPLE = pathlib.Path(__file__).parent / 'samples' / 'tickets.csv'


def get_config():
  """Returns the config; set data.path to a file of your own."""
  config = config_lib.default(task='classification', source='csv')

  config.task.pooling = 'mean'
  config.task.evidence = 0.5

  config.data.path = str(SAMPLE)
  config.data.splits = (70, 15, 15)
  config.data.tokenizer = 'bpe'
  config.data.vocabulary = 4096
  config.data.bucketing = 'least_padding'
  config.data.buckets = 2
  config.data.length = 128
  config.data.batch_size = 32
  config.data.workers = 0

  # Few texts, many words: start from small weights and regularize strongly,
  # or the model memorizes the training set.
  config.model.layers = 1
  config.model.width = 128
  config.model.embedding_scale = 0.02
  config.model.branch_scale = 0.02
  config.model.dropout = 0.5
  config.model.token_dropout = 0.3
  config.cell.heads = 4
  config.cell.key_width = 16
  config.cell.value_width = 32
  config.cell.decay = 'head'

  config.optimizer.learning_rate = 1e-3
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-5

  config.train.steps = 1000
  config.train.log_every = 20
  config.train.checkpoint_every = 200
  config.evaluate.every = 50
  config.evaluate.batch_size = 32
  config.evaluate.criterion = 'errors'
  config.evaluate.patience = 4
  config.sample.new_tokens = 0
  return config
