"""M4 hourly by cell: OWA on the competition's test.

  python -m launch.experiments --grid=m4_hourly --workdir=runs/m4_hourly \\
      --set=data.path=PATH/Hourly-train.csv \\
      --set=data.test_path=PATH/Hourly-test.csv

The config is configs/m4.py, whose cell is SimpleRNN. 'anchor' is the seasonal
autoregression that it corrects, left as it is; SEASON corrects the day before
by a linear map and the mean of four networks. Settings were chosen on the
validation split, the last 48 hours of training; the test has chosen nothing.
"""

from rnn_jax.experiments import grid

CELLS = ('simple_rnn', 'lstm', 'gru', 'slstm', 'mamba2')
ANCHOR = {  # a step too small to change it
  'train.steps': 1,
  'train.checkpoint_every': 1,
  'evaluate.every': 1,
  'optimizer.learning_rate': 1e-8,
  'schedule.final_learning_rate': 1e-9,
}
SEASON = {
  'task.anchor': 'season',
  'task.ridge': 0.01,
  'task.members': 4,
  'task.unit': 'window',
  'task.loss_every': 1,
  'optimizer.learning_rate': 3e-3,
  'train.steps': 400,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='M4 hourly',
    config='configs/m4.py',
    variants={
      **{cell: {'model.cell': cell} for cell in CELLS},
      'anchor': ANCHOR,
      'season': SEASON,
    },
    metrics=(
      ('owa', 'lower', 'OWA'),
      ('smape', 'lower', 'sMAPE'),
      ('mase', 'lower', 'MASE'),
      ('msis', 'lower', 'MSIS'),
    ),
    split='test',
    notes={'winner': {'owa': 0.440, 'smape': 9.328, 'mase': 0.893}},
  )
