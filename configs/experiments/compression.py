"""Compressed gradient sums between data-parallel devices, and their cost.

  XLA_FLAGS=--xla_force_host_platform_device_count=4 \\
  python -m launch.experiments \\
      --grid=configs/experiments/compression.py --workdir=runs/compression

The default job, with each batch divided among the devices. 'int8' sends
26.6 % of the exact sum's bytes, 'top_k' 1 % of each device's numbers (see
rnn_jax/parallel/compression.py).
"""

from rnn_jax.experiments import grid


def get_grid():
  """Returns the grid."""
  return grid.Grid(
    title='Compressed gradients',
    config='configs/stdlib_bytes.py',
    variants={
      'exact': {'train.steps': 1000},
      'int8': {'train.steps': 1000, 'mesh.compression': 'int8'},
      'top_k': {'train.steps': 1000, 'mesh.compression': 'top_k'},
      'top_k_10': {
        'train.steps': 1000,
        'mesh.compression': 'top_k',
        'mesh.top_k_share': 0.1,
      },
    },
    metrics=(('loss', 'lower', 'loss'), ('perplexity', 'lower', 'perplexity')),
    baseline='exact',
    seeds=(0,),
  )
