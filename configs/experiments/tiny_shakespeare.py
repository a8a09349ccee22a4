"""The config of Tiny Shakespeare with five seeds.

  python -m launch.experiments \\
      --grid=configs/experiments/tiny_shakespeare.py \\
      --workdir=runs/tiny_shakespeare_seeds --set=data.path=PATH/input.txt
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Tiny Shakespeare',
    config='configs/tiny_shakespeare.py',
    variants={'simple_rnn': {}},
    metrics=(('loss', 'lower', 'nats per character'),),
    baseline='simple_rnn',
    seeds=(0, 1, 2, 3, 4),
  )
