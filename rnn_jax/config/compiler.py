"""Sets of XLA options by name, for the programs of training and evaluation.

A set is for one platform. 'default' leaves XLA's defaults. `python -m
benchmarks.run --suite=xla_variants` measures their costs and gains.
"""

from rnn_jax import errors

SETS: dict[str, dict[str, dict[str, bool | int | str]]] = {
  'cpu': {
    'default': {},
    'fast_compile': {  # for trials: less time to compile, slower programs
      'xla_backend_optimization_level': 1,
      'xla_llvm_disable_expensive_passes': True,
    },
    'fast_math': {  # sums in any order; NaN and infinity mark skipped steps
      'xla_cpu_enable_fast_math': True,
      'xla_cpu_fast_math_honor_nans': True,
      'xla_cpu_fast_math_honor_infs': True,
    },
    'low_memory': {  # an order of operations that frees buffers early
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


def options(name: str, platform: str) -> dict[str, bool | int | str]:
  """Returns the compiler options of the set `name` on a platform.

  Raises:
    InputError: the platform doesn't have this set.
  """
  sets = SETS.get(platform, {'default': {}})
  if name not in sets:
    raise errors.InputError(
      f'train.compiler={name!r}: {platform} has {sorted(sets)}'
    )
  return sets[name]
