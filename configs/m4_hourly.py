"""M4 hourly: 414 series of 700 to 960 readings, the next 48 hours of each.

  python -m launch.train --config=configs/m4_hourly.py --workdir=runs/m4_hourly
  python -m launch.evaluate --workdir=runs/m4_hourly

The data of the M4 competition (Makridakis et al., 2020) aren't in this
repository: put Hourly-train.csv and Hourly-test.csv, as it published them, into
m4/. The evaluation prints sMAPE, MASE and OWA as the competition defines them,
next to naive, seasonal naive and Naive2.

Whole series are rows, and every hour of them forecasts the next two days. The
last 48 hours of training choose the checkpoint.
"""

from rnn_jax import config as config_lib


def get_config():
  """Returns the config; the files are in m4/."""
  config = config_lib.default(task='forecasting', source='series')

  # No times, so the season and the horizon are given. A step sees a week.
  config.data.path = 'm4/Hourly-train.csv'
  config.data.test_path = 'm4/Hourly-test.csv'
  config.data.season = 24
  config.data.horizon = 48
  config.data.window = 168
  config.data.length = 1024
  config.data.buckets = 1
  config.data.batch_size = 16
  config.data.workers = 0

  # The median, and an interval of 90 %.
  config.task.quantiles = (0.05, 0.5, 0.95)

  config.model.layers = 2
  config.model.width = 128
  config.model.dropout = 0.1

  config.optimizer.learning_rate = 3e-3
  config.optimizer.ema_decay = 0.98
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-4

  config.train.steps = 600
  config.train.log_every = 25
  config.train.checkpoint_every = 200
  config.evaluate.every = 100
  config.sample.new_tokens = 0
  return config
