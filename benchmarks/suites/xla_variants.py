"""One training step of the published model, compiled in many ways.

Projections, recurrences, number formats, layers, donation, and options of XLA;
each changes one thing of the same default.
"""

from benchmarks import cases as cases_lib

CHUNKS = (16, 32, 64, 128, 256)
LIBRARY = {
  'default': {},
  'separate projections': {'cell.fused': False},
  'scan': {'recurrence.impl': 'scan'},
  'scan, remat 8': {'recurrence.impl': 'scan', 'remat.every': 8},
  'scan, remat 32': {'recurrence.impl': 'scan', 'remat.every': 32},
  'scan, remat sqrt': {'recurrence.impl': 'scan', 'remat.every': 'sqrt'},
  'associative': {'recurrence.impl': 'associative'},
  'pallas': {'recurrence.impl': 'pallas'},
  'segments of 32': {'remat.segment': 32},
  'segments of 64': {'remat.segment': 64},
  'tf32': {'train.precision': 'tf32'},
  'bfloat16': {'train.precision': 'bfloat16'},
  'bfloat16 operands': {'train.precision': 'bfloat16_operands'},
  'float16': {'train.precision': 'float16'},
  'int8 forward': {'train.quantized': 'int8'},
  'layers scanned': {'model.unroll': 1},
  **{
    f'chunked, {n} steps': {
      'recurrence.impl': 'chunked',
      'recurrence.chunk_length': n,
    }
    for n in CHUNKS
  },
}
UNROLLED = (4, 8, 16)
XLA = {
  'cpu': {
    'fast math': '--xla_cpu_enable_fast_math=true',
    'no fast math': '--xla_cpu_enable_fast_math=false',
    'Eigen on many threads': '--xla_cpu_multi_thread_eigen=true',
    'Eigen on one thread': '--xla_cpu_multi_thread_eigen=false',
  },
  'gpu': {
    'no command buffers': '--xla_gpu_enable_command_buffer=',
    'latency-hiding scheduler': (
      '--xla_gpu_enable_latency_hiding_scheduler=true'
    ),
    'autotune level 0': '--xla_gpu_autotune_level=0',
    'autotune level 4': '--xla_gpu_autotune_level=4',
    'Triton GEMM': '--xla_gpu_enable_triton_gemm=true',
    'no Triton GEMM': '--xla_gpu_enable_triton_gemm=false',
  },
}
CORES = (1, 2, 4, 8)
SUBJECT = 'ours.train_step'


def cases(quick):
  """The variants, behind what the device can do at most."""
  size = {'batch': 2, 'length': 32} if quick else {}
  listed = [*_library(size), *_options(size)]
  return cases_lib.framed([*cases_lib.peaks(quick), *listed], quick)


def _library(size):
  for name, overrides in LIBRARY.items():
    parameters = {'overrides': overrides, **size}
    yield cases_lib.Case(name, SUBJECT, parameters)
  for turn in UNROLLED:
    yield cases_lib.Case(
      f'scan, unrolled {turn}', SUBJECT, {'cell': f'unrolled_{turn}', **size}
    )
  yield cases_lib.Case('not donated', SUBJECT, {'donate': False, **size})
  removed = {'cell': 'without_recurrence', **size}
  yield cases_lib.Case('recurrence removed', SUBJECT, removed)


def _options(size):
  for platform, options in XLA.items():
    for name, flag in options.items():
      yield cases_lib.Case(
        f'XLA: {name}',
        SUBJECT,
        size,
        environment={'XLA_FLAGS': flag},
        platform=platform,
      )
  for count in CORES:
    yield cases_lib.Case(
      f'cores: {count}', SUBJECT, size, core_limit=count, platform='cpu'
    )
