"""What cells keep: state tracking and long range, against their states.

  python -m launch.experiments --grid=long_range --workdir=runs/long_range

Four tasks of configs/long_range.py with each cell at as many weights as
SimpleRNN (_widths.py); some cells also with an option that such tasks are known
to need. 'slow' gates begin between .88 and .9997 a step. One seed and the
config's learning rate; about 2 hours on 2 cores. More seeds of the digits:
--only='^simple_rnn.*/digits' --seeds=0,1,2,3,4.
"""

from configs import long_range
from configs.experiments import _widths
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

STEPS = {'parity': 400, 's5': 2000, 'digits': 600, 'listops': 1000}
BATCH = 32
MODELS = {cell: (cell, {}) for cell in _widths.CELLS} | {
  f'{cell}-beta_2': (cell, {'cell.max_beta': 2.0})
  for cell in ('deltanet', 'gated_deltanet', 'kda')
}
COUPLED = {'cell.preset': 'coupled', 'cell.value_width': 28}
SLOW = {'cell.gate_bias': 5.0, 'cell.gate_spread': 3.0}
MODELS |= {
  f'simple_rnn-{name}': ('simple_rnn', own)
  for name, own in {
    'coupled': COUPLED,
    'coupled-slow': COUPLED | SLOW,
    'slow': SLOW,
    'slow-16_taps': SLOW | {'cell.convolution': 16},
    'slow-positions': SLOW | {'model.positions': 'sinusoidal'},
  }.items()
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='What a state keeps',
    config='configs/long_range.py',
    variants={
      f'{name}/{task}': variant(name, task, steps)
      for name in MODELS
      for task, steps in STEPS.items()
    },
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('test.accuracy', 'higher', 'accuracy on the test split'),
    ),
    axes=axes.Axes('cell', 'task'),
    seeds=(0,),
  )


def variant(name, task, steps):
  """Returns the overrides of one of MODELS, or of a cell, and a task."""
  cell, own = MODELS.get(name, (name, {}))
  fresh = {}
  if task != 'digits':  # which can't be generated
    source, _ = long_range.TASKS[task]
    examples = steps * BATCH * 10 // 9 + 100  # each is read once
    fresh = {f'data.{source}.examples': examples, 'data.splits': (90, 5, 5)}
  return {
    'config': f'configs/long_range.py:{task},{cell}',
    'train.steps': steps,
    'train.checkpoint_every': steps,
    'evaluate.every': steps,
    **fresh,
    **_widths.of(cell, _widths.SMALL),
    **own,
  }
