"""Five data sets of the time series classification archive, our config on each.

  python -m launch.experiments --grid=series_archive --workdir=runs/archive

The files are data/archive/NAME/NAME_TRAIN.ts and NAME_TEST.ts in the current
folder, of https://www.timeseriesclassification.com; package aeon has them, too.
Each data set has its published split: nothing of the training part is held out,
and the last step is evaluated.
"""

from rnn_jax.experiments import grid

NAMES = (
  'JapaneseVowels',
  'BasicMotions',
  'ArrowHead',
  'GunPoint',
  'ItalyPowerDemand',
)


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Series of the archive: our config on each',
    config='configs/series_classification.py',
    variants={
      name: {
        'data.path': f'data/archive/{name}/{name}_TRAIN.ts',
        'data.test_path': f'data/archive/{name}/{name}_TEST.ts',
        'data.splits': (100, 0, 0),
      }
      for name in NAMES
    },
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('macro_f1', 'higher', 'macro F1'),
    ),
    split='test',
    seeds=(0, 1, 2),
  )
