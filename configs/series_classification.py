"""The class of a series: four small GRU models in both directions.

  python -m launch.train --config=configs/series_classification.py \\
      --workdir=runs/gestures
  python -m launch.evaluate --workdir=runs/gestures --split=test

That trains on samples/gestures.csv, 66 gestures of 3 classes, each 14 to 23
readings of the acceleration in two directions. Your own series:

  python -m launch.train --config=configs/series_classification.py \\
      --config.data.path=FILE.csv --workdir=runs/mine

The file has the columns unique_id, ds and label, and a column for each channel;
docs/series.md has other forms. The channels, the classes and the longest row
follow from the file; 15 % of the series are held out for validation, and 15 %
for the test. A number of each series, or a class of each step, is
--config.task.name=series_regression or series_tagging. The sizes are for some
tens to some thousand series of up to some hundred readings.
"""

import pathlib

from rnn_jax import config as config_lib

# In the folder of this file, wherever it is installed.
SAMPLE = pathlib.Path(__file__).parent / 'samples' / 'gestures.csv'


def get_config():
  """Returns the config; set data.path to a file of your own."""
  config = config_lib.default(
    task='series_classification', source='labelled_series'
  )

  # The last, the largest and the mean state of a series decide its class, and
  # the mean of four models' outputs.
  config.task.pooling = 'concat'
  config.task.members = 4

  # A step sees the last readings of each channel: a causal convolution.
  config.data.path = str(SAMPLE)
  config.data.splits = (70, 15, 15)
  config.data.window = 16
  config.data.length = 4096  # or the longest series
  config.data.bucketing = 'least_padding'
  config.data.buckets = 2
  config.data.batch_size = 16
  config.data.workers = 0

  config.model.cell = 'gru'
  config.model.layers = 2
  config.model.width = 64
  config.model.bidirectional = True
  config.model.dropout = 0.2

  config.optimizer.learning_rate = 5e-3
  config.optimizer.weight_decay = 0.05
  config.optimizer.ema_decay = 0.95
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-5

  config.train.steps = 400
  config.train.log_every = 20
  config.train.checkpoint_every = 200
  config.evaluate.every = 100
  config.evaluate.batch_size = 64
  config.sample.new_tokens = 0
  return config
