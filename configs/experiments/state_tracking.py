"""State tracking: parity, and modular arithmetic without and with brackets.

  python -m launch.experiments --grid=state_tracking \\
      --workdir=runs/state_tracking

Three tasks of configs/long_range.py with cells of different kinds, each at as
many weights as SimpleRNN (_widths.py). The test split has texts of four times
the length. One seed and the config's learning rate.
"""

from configs.experiments import long_range
from rnn_jax.experiments import axes
from rnn_jax.experiments import grid

STEPS = {'parity': 1000, 'arithmetic': 12_000, 'brackets': 12_000}
CELLS = ('simple_rnn', 'mamba2', 'deltanet', 'gated_deltanet', 'rwkv7')
MODELS = (
  *CELLS,
  *('deltanet-beta_2', 'gated_deltanet-beta_2'),
  *('deltaproduct', 'gated_deltaproduct', 'mamba3'),
  *('lstm', 'gru'),
)


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='State tracking',
    config='configs/long_range.py',
    variants={
      f'{name}/{task}': long_range.variant(name, task, steps)
      for name in (*MODELS, 'attention')
      for task, steps in STEPS.items()
    },
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('test.accuracy', 'higher', 'accuracy on the test split'),
    ),
    axes=axes.Axes('cell', 'task'),
    seeds=(0,),
  )
