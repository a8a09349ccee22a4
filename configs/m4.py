"""M4: the hourly or the weekly series of the M4 competition.

  python -m launch.train --config=configs/m4.py --workdir=runs/m4_hourly
  python -m launch.evaluate --workdir=runs/m4_hourly
  python -m launch.train --config=configs/m4.py:weekly --workdir=runs/m4_weekly

Hourly are 414 series of 700 to 960 readings, of which the next 48 are forecast;
weekly are 359 of 80 to 2,597, and the next 13. The data of the competition
(Makridakis et al., 2020) aren't in this repository: put Hourly-train.csv and
Hourly-test.csv, as it published them, into m4/, or the weekly ones. The
evaluation prints sMAPE, MASE and OWA as the competition defines them, next to
naive, seasonal naive and Naive2.

Whole series are rows, and every step of them forecasts. The last horizon of
training chooses the checkpoint, and has chosen all that is below, too.
"""

from rnn_jax import config as config_lib

PARTS = {
  # A step sees four weeks, which tell how the next days resemble earlier ones.
  'hourly': {
    'data.season': 24,
    'data.horizon': 48,
    'data.window': 672,
    'data.scaling': 'window',
    'data.length': 1024,
    'data.buckets': 1,
    'data.batch_size': 16,
    'task.anchor': 'seasonal_ar',
    'task.unit': 'season',
    'task.loss_every': 4,
    'model.width': 64,
    'optimizer.learning_rate': 1e-3,
    'train.steps': 200,
    'train.checkpoint_every': 50,
    'evaluate.every': 50,
  },
  # A step sees five years.
  'weekly': {
    'data.season': 1,
    'data.horizon': 13,
    'data.window': 260,
    'data.scaling': 'standard_window',
    'data.length': 1024,
    'data.buckets': 1,
    'data.batch_size': 4,
    'task.ridge': 0.003,
    'model.width': 32,
    'train.steps': 200,
  },
}


def get_config(part='hourly'):
  """Returns the config of a key of PARTS; the files are in m4/."""
  if part not in PARTS:
    raise ValueError(f'm4.py:{part}: choose one of {[*PARTS]}')
  config = config_lib.default(task='forecasting', source='series')

  # No times, so the season and the horizon are given.
  config.data.path = f'm4/{part.title()}-train.csv'
  config.data.test_path = f'm4/{part.title()}-test.csv'
  config.data.held_out = (1, 0)
  config.data.log = True  # what is added to a logarithm multiplies
  config.data.workers = 0

  # The median, and an interval of 90 %.
  config.task.quantiles = (0.05, 0.5, 0.95)

  config.model.layers = 2
  config.model.dropout = 0.1

  # A linear map that begins as that of least squares needs small steps.
  config.optimizer.learning_rate = 2e-3
  config.optimizer.multipliers = (('.*direct.*', 0.05),)
  config.optimizer.ema_decay = 0.98
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-4

  config.train.log_every = 25
  config.train.checkpoint_every = 100
  config.evaluate.every = 100
  config.sample.new_tokens = 0
  config_lib.override(config, PARTS[part])
  return config
