"""The default job with other cells, at equal weights: loss against seconds.

  python -m launch.experiments --grid=stdlib_cells --workdir=runs/stdlib_cells

The model of configs/stdlib_bpe.py with three layers, in float32, and its data
and optimizer, with less weight decay, 1,700 steps; only the cell differs, at a
width that gives as many weights within 1 %. 'attention' is a Transformer with
rotary positions, whose tokens see the 256 before them. Compare times only among
runs made beside each other.
"""

from configs.experiments import byte_pairs
from rnn_jax.experiments import grid

CELLS = {
  'qrnn': {'state_width': 76},
  'mamba2': {'value_width': 41},
  'lstm': {'state_width': 73},
  'attention': {'head_width': 34},
}

MODEL = byte_pairs.LITTLE_DECAY | {
  'model.layers': 3,
  'model.unroll': 3,
  'train.precision': 'float32',
  'train.steps': 1700,
  'train.checkpoint_every': 425,
  'evaluate.every': 425,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library: cells at equal weights",
    config='configs/stdlib_bpe.py',
    variants={
      'simple_rnn': MODEL,
      **{
        cell: MODEL
        | {'model.cell': cell}
        | {f'cell.{key}': value for key, value in own.items()}
        for cell, own in CELLS.items()
      },
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='simple_rnn',
    seeds=(0,),
  )
