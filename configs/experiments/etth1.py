"""ETTh1 by horizon: errors over every window of the test part.

  python -m launch.experiments --grid=etth1 --workdir=runs/etth1 \\
      --set=data.path=PATH/train.csv \\
      --set=data.validation_path=PATH/validation.csv \\
      --set=data.test_path=PATH/test.csv

The docstring of configs/etth1.py says how the three files are made. Published
means over the four horizons are xLSTM-Mixer .397, PatchTST .413 and DLinear
.423 of squared errors.
"""

from rnn_jax.experiments import grid

HORIZONS = ('96', '192', '336', '720')
# As it is trained, and what it begins with: the linear map by itself.
MODELS = {
  '': {},
  '-linear': {
    'optimizer.learning_rate': 1e-9,
    'schedule.final_learning_rate': 0.0,
    'train.steps': 1,
    'schedule.warmup_steps': 1,
  },
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='ETTh1',
    config='configs/etth1.py',
    variants={
      f'{horizon}{name}': {'config': f'configs/etth1.py:{horizon}', **own}
      for horizon in HORIZONS
      for name, own in MODELS.items()
    },
    metrics=(
      ('mse', 'lower', 'mean squared error'),
      ('mae', 'lower', 'mean absolute error'),
    ),
    split='test',
  )
