"""Compressed gradient sums between data-parallel devices, and their cost.

  XLA_FLAGS=--xla_force_host_platform_device_count=4 \\
  python -m launch.experiments \\
      --grid=configs/experiments/compression.py --workdir=runs/compression

configs/stdlib_bytes.py at half its width, each batch divided among the devices.
'int8' sends 26.6 % of the exact sum's bytes, 'top_k' 1 % of each device's
numbers, 'top_k_10' 10 % (see rnn_jax/parallel/compression.py).
"""

from rnn_jax.experiments import grid

SHARED = {
  'data.length': 128,
  'model.width': 96,
  'model.mlp_width': 192,
  'train.steps': 500,
}


def get_grid():
  """Returns the grid."""
  top_k = {'mesh.compression': 'top_k'}
  variants = {
    'exact': {},
    'int8': {'mesh.compression': 'int8'},
    'top_k': top_k,
    'top_k_10': top_k | {'mesh.top_k_share': 0.1},
  }
  return grid.Grid(
    title='Compressed gradients',
    config='configs/stdlib_bytes.py',
    variants={name: SHARED | own for name, own in variants.items()},
    metrics=(('loss', 'lower', 'loss'), ('perplexity', 'lower', 'perplexity')),
    baseline='exact',
    seeds=(0, 1, 2),
  )
