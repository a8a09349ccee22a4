"""Answers that small models get right, by the distance of what is asked.

  python -m launch.experiments --grid=recall --workdir=runs/recall_grid

Each run trains one model of configs/recall.py on one distance, from fresh
texts: two layers of width 64, of 24,576 to 25,408 weights each. 'longer' are
models that learn associative recall late. A window isn't tested on texts that
it covers. 45 minutes on 2 cores.
"""

from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

MODELS = {  # a model of configs/recall.py, and the window of its attention
  'simple_rnn': ('simple_rnn', 0),
  'simple': ('simple', 0),
  'coupled': ('coupled', 0),
  'attention-window_32': ('attention', 32),
  'attention': ('attention', 0),
}
LONGER = ('simple_rnn', 'coupled', 'attention')
DISTANCES = (16, 64, 256)
PAIRS, SYMBOLS, BATCH = 4, 8, 32
STEPS = {'recall': 500, 'copying': 300}


def get_grid():
  """Returns the grid."""
  variants = {
    f'{name}/{source}-{distance}': variant(name, source, distance, steps)
    for name in MODELS
    for source, steps in STEPS.items()
    for distance in DISTANCES
    if length(source, distance) > MODELS[name][1]
  }
  variants |= {
    f'{name}-longer/recall-{distance}': variant(name, 'recall', distance, 1500)
    for name in LONGER
    for distance in DISTANCES
  }
  return grid.Grid(
    title='Recall at a distance',
    config='configs/recall.py',
    variants=variants,
    metrics=(
      ('exact', 'higher', 'whole answers right'),
      ('accuracy', 'higher', 'symbols right'),
    ),
    axes=axes.Axes('model', 'task-distance'),
    seeds=(0,),
  )


def variant(name, source, distance, steps):
  """Returns the overrides of a model, a task and its distance."""
  model, window = MODELS[name]
  symbols = length(source, distance)
  return {
    'config': f'configs/recall.py:{model}',
    'data.source': source,
    'data.synthetic.pairs': PAIRS,
    'data.synthetic.symbols': SYMBOLS,
    'data.synthetic.distance': distance,
    'data.synthetic.examples': steps * BATCH * 20 // 19 + 20,
    'data.splits': (95, 5, 0),
    'data.length': symbols,
    'data.boundaries': (symbols,),
    'train.steps': steps,
    'train.checkpoint_every': steps,
    'evaluate.every': steps,
    **({'cell.window': window} if window else {}),
  }


def length(source, distance):
  """Returns the symbols of a text."""
  asked = 6 if source == 'recall' else 2
  return distance + asked * PAIRS + (source != 'recall')
