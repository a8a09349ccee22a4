"""The standard library in bytes and in byte pairs: how long each takes.

  python -m launch.experiments --grid=stdlib_steps --workdir=runs/stdlib_steps

One seed, on an idle core, half an hour: 'byte_pairs-wider' takes 20 minutes.
The seeds of stdlib.py are what the losses are compared by.
"""

from rnn_jax.experiments import grid

WIDER = {
  'model.width': 192,
  'model.mlp_width': 384,
  'cell.value_width': 56,
  'data.vocabulary': 4096,
  'train.steps': 6300,
  'evaluate.every': 1575,
}


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library, one seed on an idle core",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': {'config': 'configs/stdlib_bpe.py'},
      'byte_pairs-wider': {'config': 'configs/stdlib_bpe.py'} | WIDER,
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    split='test',
    seeds=(0,),
  )
