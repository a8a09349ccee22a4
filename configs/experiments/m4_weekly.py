"""M4 weekly: OWA on the last 13 weeks of training, which choose the settings.

  python -m launch.experiments --grid=m4_weekly --workdir=runs/m4_weekly \\
      --set=data.path=PATH/Weekly-train.csv

The competition's test isn't read.
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='M4 weekly',
    config='configs/m4.py:weekly',
    variants={'simple_rnn': {'data.test_path': ''}},
    metrics=(
      ('owa', 'lower', 'OWA'),
      ('smape', 'lower', 'sMAPE'),
      ('mase', 'lower', 'MASE'),
    ),
  )
