"""Forecasts of series of numbers: from a CSV to a fan chart.

  python -m launch.train --config=configs/forecasting.py --workdir=runs/load
  python -m launch.evaluate --workdir=runs/load
  python -m launch.forecast --workdir=runs/load \\
      --input=configs/samples/load.csv --output=forecast.csv --plot=fan.png

That trains on samples/load.csv, the hourly load of two buildings, and prints
naive, seasonal naive and Naive2 next to the model. Your own series:

  python -m launch.train --config=configs/forecasting.py \\
      --config.data.path=FILE.csv --workdir=runs/mine

The file has the columns unique_id, ds and y, or a time and a column for each
series; docs/series.md has other forms. The frequency, the season, the horizon
and the window follow from the times. The last two horizons of each series are
held out, for validation and test. The sizes are for some tens to some thousand
series of some hundred readings; --config.data.length is the longest row.
"""

import pathlib

from rnn_jax import config as config_lib

# In the folder of this file, wherever it is installed.
SAMPLE = pathlib.Path(__file__).parent / 'samples' / 'load.csv'


def get_config():
  """Returns the config; set data.path to a file of your own."""
  config = config_lib.default(task='forecasting', source='series')

  # A row is up to so many readings of a series; each forecasts the next ones.
  config.data.path = str(SAMPLE)
  config.data.length = 256
  config.data.batch_size = 16
  config.data.buckets = 1
  config.data.workers = 0

  # Neighbouring steps forecast nearly the same: fewer losses, as good.
  config.task.loss_every = 5

  config.model.layers = 2
  config.model.unroll = 2
  config.model.width = 64
  config.model.dropout = 0.1

  config.optimizer.learning_rate = 3e-3
  config.optimizer.ema_decay = 0.95
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-4

  config.train.steps = 150
  config.train.log_every = 20
  config.train.checkpoint_every = 50
  config.evaluate.every = 25
  config.evaluate.batch_size = 16
  config.sample.new_tokens = 0
  return config
