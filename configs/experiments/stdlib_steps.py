"""The standard library in bytes, in byte pairs, and for 20 minutes.

  python -m launch.experiments --grid=stdlib_steps --workdir=runs/stdlib_steps

One seed, on two idle cores: how long each takes. The five seeds of stdlib.py
are what the losses are compared by. 30 minutes.
"""

from rnn_jax.experiments import grid

PAIRS = {'config': 'configs/stdlib_bpe.py'}
WIDER = {  # with more time, a larger model is better
  'model.width': 192,
  'model.mlp_width': 384,
  'cell.value_width': 56,
  'train.steps': 5000,
  'train.checkpoint_every': 1250,
  'evaluate.every': 1250,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library, one seed on two idle cores",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': PAIRS,
      'byte_pairs-wider-5000_steps': PAIRS | WIDER,
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    split='test',
    seeds=(0,),
  )
