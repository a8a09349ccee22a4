"""Six tasks by which architectures are designed, at their published settings.

  python -m launch.experiments --grid=mad --workdir=runs/mad

configs/mad.py, one option at a time from its first level, with three rates and
two weight decays each, the best of which counts. The score of a cell in a task
is the mean over its settings. That is 396 runs a cell, most of 20,000 steps:
for a GPU; --only='^gla/recall' is one cell in one task.
"""

from configs import mad
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

FEWER = (6400, 3200, 1600, 800)
LEVELS = {  # of a task, by option
  'recall': {
    'vocabulary': (32, 64, 128),
    'length': (256, 512, 1024),
    'examples': FEWER,
  },
  'noisy_recall': {
    'vocabulary': (48, 80, 144),
    'length': (256, 512, 1024),
    'examples': FEWER,
    'noise': (0.4, 0.6, 0.8),
  },
  'copying': {
    'vocabulary': (32, 64, 128),
    'length': (512, 1024),
    'examples': FEWER,
    'copied': (32, 64, 96),
  },
  'compression': {
    'vocabulary': (32, 64, 128),
    'length': (64, 128, 256),
    'examples': FEWER,
  },
  'memorization': {'vocabulary': (512, 1024, 2048, 4096, 8192)},
}
LEVELS['fuzzy_recall'] = LEVELS['recall']
RATES = 1e-4, 5e-4, 1e-3
DECAYS = 0.0, 0.1


def get_grid():
  """Returns the grid."""
  variants = {
    f'{cell}/{task}-{level}/{rate:g}-{decay:g}': own
    | {
      'config': f'configs/mad.py:{task},{cell}',
      'optimizer.learning_rate': rate,
      'optimizer.weight_decay': decay,
    }
    for cell in mad.CELLS
    for task in mad.SIZES
    for level, own in _levels(task)
    for rate in RATES
    for decay in DECAYS
  }
  return grid.Grid(
    title='Six tasks for the design of architectures',
    config='configs/mad.py',
    variants=variants,
    metrics=(('accuracy', 'higher', 'symbols that can be known'),),
    axes=axes.Axes('cell', 'task', 'rate and decay'),
    seeds=(0,),
  )


def _levels(task):
  """Yields the name of each setting of a task, and what it overrides."""
  yield 'first', {}
  for option, values in LEVELS[task].items():
    for value in values:
      own = {f'data.mad.{option}': value}
      if option == 'length':
        own |= {'data.length': value, 'data.boundaries': (value,)}
      if option == 'examples':
        own['train.steps'] = mad.steps(value)
      yield f'{option}_{value:g}', own
