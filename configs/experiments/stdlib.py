"""The standard library in bytes and in byte pairs, five seeds each.

  python -m launch.experiments --grid=configs/experiments/stdlib.py \\
      --workdir=runs/stdlib_seeds

'byte_pairs-decay_.01' has the weight decay that the default job had before, and
'byte_pairs-1600_steps' takes as long, with five Newton-Schulz
steps instead of three and the norm before them as published, and its rate falls
by a cosine instead of a line.
"""

from configs.experiments import byte_pairs
from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title="Python's standard library",
    config='configs/stdlib_bytes.py',
    variants={
      'bytes': {},
      'byte_pairs': {'config': 'configs/stdlib_bpe.py'},
      'byte_pairs-decay_.01': byte_pairs.LITTLE_DECAY
      | {'config': 'configs/stdlib_bpe.py'},
      'byte_pairs-1600_steps': byte_pairs.STDLIB_BPE
      | byte_pairs.ONE_CHANGE['config-embedding_30'],
    },
    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),
    baseline='bytes',
    split='test',
    seeds=(0, 1, 2, 3, 4),
  )
