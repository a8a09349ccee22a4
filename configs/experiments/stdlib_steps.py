"""The standard library in bytes, in byte pairs, and in four times the steps.

  python -m launch.experiments --grid=stdlib_steps --workdir=runs/stdlib_steps

One seed, on two idle cores: how long each takes. The five seeds of stdlib.py
are what the losses are compared by. 30 minutes.
"""

from rnn_jax.experiments import grid

PAIRS = {'config': 'configs/stdlib_bpe.py'}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library, one seed on two idle cores",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': PAIRS,
      'byte_pairs-6000_steps': PAIRS | {'train.steps': 6000},
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    split='test',
    seeds=(0,),
  )
