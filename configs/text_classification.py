"""The class of a text: a gated convolution, and a linear SVM.

  python -m launch.train --config=configs/text_classification.py \\
      --workdir=runs/tickets
  python -m launch.evaluate --workdir=runs/tickets --split=test

That trains on samples/tickets.csv, 400 support tickets of 4 classes. Of TREC's
questions, 5,452 of 6 classes, the kind of a held-out tenth is found with an
accuracy of .869 (docs/results.md). Your own texts:

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

  # The largest number that each channel has had: what a class depends on may
  # be anywhere in a text.
  config.task.pooling = 'max'

  # A linear SVM has more than half of the vote: it errs in other places than
  # the network. Its features are words, pairs, what a text begins with together
  # with each later word, and capital letters.
  config.task.svm = 16.0
  config.task.svm_share = 0.6
  config.task.pairs = 2**17
  config.task.openings = 2
  config.task.case = True

  # Rare words share character n-grams with others.
  config.task.ngrams = 8192

  # Words. All that training has are tokens of their own if they fit in the
  # vocabulary; else the rarest are written in parts.
  config.data.path = str(SAMPLE)
  config.data.splits = (80, 10, 10)
  config.data.tokenizer = 'bpe'
  config.data.pre_tokenizer = 'whitespace'
  config.data.lowercase = False
  config.data.vocabulary = 12288
  config.data.bucketing = 'least_padding'
  config.data.buckets = 2
  config.data.length = 128
  config.data.batch_size = 64
  config.data.workers = 0

  # A convolution of three words with gates. Half of its inputs and of the pool
  # are dropped, or few texts are memorized.
  config.model.cell = 'qrnn'
  config.model.block = 'plain'
  config.model.layers = 1
  config.model.width = 192
  config.model.embedding_scale = 0.15
  config.model.dropout = 0.5
  config.cell.taps = 3

  config.optimizer.learning_rate = 2e-3
  config.optimizer.b2 = 0.999
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-4

  # All steps are done: with few held-out texts, evaluations in a row without a
  # new best are chance, and the falling rate brings the last gain. The best one
  # has the lowest loss, as the fewest of so few errors are chance as well.
  config.train.steps = 700
  config.train.log_every = 20
  config.train.checkpoint_every = 350
  config.evaluate.every = 70
  config.evaluate.batch_size = 64
  config.sample.new_tokens = 0
  return config
