"""All cells at one number of weights on associative recall, by learning rate.

  python -m launch.experiments --grid=cells_recall --workdir=runs/cells_recall

The task and the steps of recall.py at distance 16, with each cell at as many
weights as SimpleRNN (_widths.py). Each run takes about a minute on 2 cores.
"""

from configs.experiments import _widths
from configs.experiments import cells_text
from configs.experiments import recall
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

DISTANCE = 16


def get_grid():
  """Returns the grid."""
  task = recall.variant(
    _widths.REFERENCE, 'recall', DISTANCE, recall.STEPS['recall']
  )
  models = {
    cell: {'config': f'configs/recall.py:{cell}'}
    | _widths.of(cell, _widths.SMALL)
    for cell in _widths.CELLS
  }
  models['bdh-normed'] = {
    'config': 'configs/recall.py:bdh',
    **cells_text.NORMED,
    'cell.neurons': 34,
  }
  return grid.Grid(
    title='Cells at equal weights: associative recall',
    config='configs/recall.py',
    variants={
      f'{name}/{rate:g}': task | own | {'optimizer.learning_rate': rate}
      for name, own in models.items()
      for rate in cells_text.RATES
    },
    metrics=(('exact', 'higher', 'answers right'),),
    axes=axes.Axes('cell', best='rate'),
    seeds=(0,),
  )
