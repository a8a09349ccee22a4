"""Forecasts of series of numbers: from a CSV to a trained model.

  python -m launch.train --config=configs/forecasting.py \\
      --workdir=runs/load
"""

import pathlib

from rnn_jax import config as config_lib

SAMPLE = pathlib.Path(__file__).parent / 'samples' / 'load.csv'


def get_config():
  """Returns the config; set data.path to a file of your own."""
  config = config_lib.default(task='forecasting', source='series')
  config.data.path = str(SAMPLE)
  config.data.length = 512
  config.data.batch_size = 32
  config.model.width = 64
  config.train.steps = 500
  config.optimizer.learning_rate = 3e-3
  config.sample.new_tokens = 0
  return config
