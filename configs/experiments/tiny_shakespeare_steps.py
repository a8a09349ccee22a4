"""Tiny Shakespeare by steps, with more dropout, no average, another preset.

  python -m launch.experiments --grid=tiny_shakespeare_steps \\
      --workdir=runs/tiny_shakespeare_steps --set=data.path=PATH/input.txt

One seed. The config's 4,200 steps take 14 minutes on two idle cores.
"""

from rnn_jax.experiments import grid

SHORTER = {'train.steps': 3300}
DROPPED = SHORTER | {'model.dropout': 0.15}
COUPLED = {
  'cell.preset': 'coupled',
  'cell.decay': 'key',
  'cell.gate_bias': 1.0,
  'cell.gate_spread': 1.0,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Tiny Shakespeare by the number of steps',
    config='configs/tiny_shakespeare.py',
    variants={
      '4200_steps': {},
      '3300_steps': SHORTER,
      '3300_steps-dropout': DROPPED,
      '3300_steps-dropout-no_average': DROPPED | {'optimizer.ema_decay': 0.0},
      'coupled-4000_steps-dropout': COUPLED
      | {'model.dropout': 0.2, 'train.steps': 4000},
    },
    metrics=(
      ('loss', 'lower', 'nats per character'),
      ('bits_per_byte', 'lower', 'bits per byte'),
    ),
    seeds=(0,),
  )
