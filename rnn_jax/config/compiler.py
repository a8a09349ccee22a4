"""Sets of XLA options by name, for the programs of training and evaluation.

A set belongs to one platform. 'default' is what XLA does by itself. What each
of them costs and buys is measured by `python -m benchmarks.run
--suite=xla_variants`.
"""

from rnn_jax import errors

SETS = {
  'cpu': {
    'default': {},
    'fast_compile': {  # for trials: less time to compile, slower programs
      'xla_backend_optimization_level': 1,
      'xla_llvm_disable_expensive_passes': True,
    },
    'fast_math': {  # sums in any order; steps that are skipped need the rest
      'xla_cpu_enable_fast_math': True,
      'xla_cpu_fast_math_honor_nans': True,
      'xla_cpu_fast_math_honor_infs': True,
    },
    'low_memory': {  # operations in an order that frees buffers early
      'xla_cpu_enable_concurrency_optimized_scheduler': False
    },
  },
  'gpu': {
    'default': {},
    'fast_compile': {'xla_gpu_autotune_level': 0},
    'max_autotune': {
      'xla_gpu_autotune_level': 4,
      'xla_gpu_enable_triton_gemm': True,
    },
    'latency_hiding': {'xla_gpu_enable_latency_hiding_scheduler': True},
    'no_command_buffers': {'xla_gpu_enable_command_buffer': ''},
    'deterministic': {'xla_gpu_deterministic_ops': True},
  },
}
NAMES = tuple(sorted({name for sets in SETS.values() for name in sets}))


def options(name: str, platform: str) -> dict:
  """Returns the compiler options of the set `name` on a platform.

  Raises:
    InputError: that platform has no such set.
  """
  sets = SETS.get(platform, {'default': {}})
  if name not in sets:
    raise errors.InputError(
      f'train.compiler={name!r}: {platform} has {sorted(sets)}'
    )
  return sets[name]
