"""The standard library in bytes and in byte pairs: how long each takes.

  python -m launch.experiments --grid=stdlib_steps --workdir=runs/stdlib_steps

One seed, on two idle cores: 'byte_pairs-wider' takes 20 minutes, and WIDTHS led
to it. The seeds of stdlib.py are what the losses are compared by.
"""

from configs.experiments import byte_pairs
from rnn_jax.experiments import grid


def _wide(width, values, dropout, steps):
  return {
    'config': 'configs/stdlib_bpe.py',
    'model.width': width,
    'model.mlp_width': 2 * width,
    'model.dropout': dropout,
    'cell.value_width': values,
    'data.vocabulary': 4096,
    'train.steps': steps,
    'evaluate.every': steps // 4,
  }


WIDTHS = {
  'byte_pairs-192': _wide(192, 56, 0.0, 6300) | byte_pairs.LITTLE_DECAY,
  'byte_pairs-192-dropout_.1': _wide(192, 56, 0.1, 6300)
  | byte_pairs.LITTLE_DECAY,
  'byte_pairs-256-dropout_.1': _wide(256, 80, 0.1, 5600)
  | byte_pairs.LITTLE_DECAY,
  'byte_pairs-256-dropout_.15': _wide(256, 80, 0.15, 7400)
  | byte_pairs.LITTLE_DECAY,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library, one seed on two idle cores",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': {'config': 'configs/stdlib_bpe.py'},
      'byte_pairs-wider': _wide(256, 80, 0.15, 6200),
      'byte_pairs-wider-longer': _wide(256, 80, 0.15, 8000),
      **WIDTHS,
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    split='test',
    seeds=(0,),
  )
