"""The standard library in bytes and in byte pairs, five seeds each.

  python -m launch.experiments --grid=configs/experiments/stdlib.py \\
      --workdir=runs/stdlib_seeds
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': {'config': 'configs/stdlib_bpe.py'},
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='bytes',
    split='test',
    seeds=(0, 1, 2, 3, 4),
  )
