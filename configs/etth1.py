"""ETTh1: seven hourly readings of a transformer, up to a month ahead.

  head -8641 ETTh1.csv > ett/train.csv
  (head -1 ETTh1.csv; sed -n 8642,11521p ETTh1.csv) > ett/validation.csv
  (head -1 ETTh1.csv; sed -n 11522,14401p ETTh1.csv) > ett/test.csv
  python -m launch.train --config=configs/etth1.py:96 --workdir=runs/etth1
  python -m launch.evaluate --workdir=runs/etth1

After the colon is the horizon: 96, 192, 336 or 720. The data (Zhou et al.,
"Informer", 2021) aren't in this repository; the commands cut the file into its
usual 12, 4 and 4 months of 30 days. The evaluation is the usual one, too: `mse`
and `mae` are of readings in standard deviations of the training part, over
every window of the test part that has a whole horizon and over all columns. The
table of naive forecasts is of windows one horizon apart.

Each column is a series by itself. A step sees two weeks: its forecast is a
linear map of these, scaled by themselves, which the recurrence corrects.
"""

from rnn_jax import config as config_lib


def get_config(horizon='96'):
  """Returns the config of a horizon; the files are in ett/."""
  config = config_lib.default(task='forecasting', source='series')

  config.data.path = 'ett/train.csv'
  config.data.validation_path = 'ett/validation.csv'
  config.data.test_path = 'ett/test.csv'
  config.data.time = 'date'
  config.data.horizon = int(horizon)
  config.data.window = 336
  config.data.scaling = 'standard_window'
  config.data.origins_every = 1
  config.data.length = 1024
  config.data.batch_size = 4
  config.data.buckets = 1
  config.data.workers = 0

  # Squared errors, in standard deviations of the training part.
  config.task.head = 'mean'
  config.task.unit = 'series'
  config.task.anchor = 'none'  # the mean of the window
  config.task.ridge = 0.1

  config.model.layers = 1
  config.model.width = 32
  config.model.dropout = 0.5

  # The linear map begins as that of least squares, and needs small steps.
  config.optimizer.learning_rate = 1e-4
  config.optimizer.multipliers = (('.*direct.*', 0.05),)
  config.optimizer.ema_decay = 0.98
  config.schedule.warmup_steps = 20
  config.schedule.final_learning_rate = 1e-6

  config.train.steps = 60
  config.train.log_every = 20
  config.train.checkpoint_every = 30
  config.evaluate.every = 30
  # A row has the windows of the part, and readings before them.
  config.evaluate.length = 3072
  config.evaluate.batch_size = 1
  config.sample.new_tokens = 0
  return config
