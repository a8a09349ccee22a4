"""Handwritten digits with a small Vision-BDH, three seeds.

python -m launch.experiments --grid=digits --workdir=runs/digits_seeds
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Handwritten digits',
    config='configs/digits_bdh.py',
    variants={'bdh': {}},
    metrics=(
      ('accuracy', 'higher', 'accuracy'),
      ('loss', 'lower', 'nats per image'),
    ),
    split='test',
  )
