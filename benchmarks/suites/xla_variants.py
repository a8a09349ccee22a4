"""One training step of the published model, compiled in many ways.

Projections, recurrences, number formats, layers, donation, and options of XLA;
each changes one thing of the same default.

  python -m benchmarks.run --suite=xla_variants
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

CHUNKS = (16, 32, 64, 128, 256)
SCAN = {'recurrence.impl': 'scan'}
LIBRARY = {
  'default': {},
  'separate projections': {'cell.fused': False},
  'scan': SCAN,
  'scan, remat 8': SCAN | {'remat.every': 8},
  'scan, remat 32': SCAN | {'remat.every': 32},
  'scan, remat sqrt': SCAN | {'remat.every': 'sqrt'},
  'associative': {'recurrence.impl': 'associative'},
  'pallas': {'recurrence.impl': 'pallas'},
  'segments of 32': {'remat.segment': 32},
  'segments of 64': {'remat.segment': 64},
  'tf32': {'train.precision': 'tf32'},
  'bfloat16': {'train.precision': 'bfloat16'},
  'bfloat16 operands': {'train.precision': 'bfloat16_operands'},
  'float16': {'train.precision': 'float16'},
  'int8 forward': {'train.quantized': 'int8'},
  'fp8 forward': {'train.quantized': 'fp8'},
  'layers scanned': {'model.unroll': 1},
  **{
    f'chunked, {n} steps': {
      'recurrence.impl': 'chunked',
      'recurrence.chunk_length': n,
    }
    for n in CHUNKS
  },
}
PARAMETERS = {
  **{name: {'overrides': overrides} for name, overrides in LIBRARY.items()},
  **{f'scan, unrolled {n}': {'cell': f'unrolled_{n}'} for n in (4, 8, 16)},
  'not donated': {'donate': False},
  'recurrence removed': {'cell': 'without_recurrence'},
}
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


def cases(quick: bool) -> list[case.Case]:
  """The variants, after the most that the device can do."""
  return [*case.peaks(quick), *_variants(quick)]


def _variants(quick):
  size = {'batch': 2, 'length': 32} if quick else {}
  workload = 'workloads.published_model.train_step'
  for name, parameters in PARAMETERS.items():
    yield case.Case(
      name,
      workload,
      {**parameters, **size},
      base='default',
    )
  for platform, options in XLA.items():
    for name, flag in options.items():
      yield case.Case(
        f'XLA: {name}',
        workload,
        size,
        environment={'XLA_FLAGS': flag},
        platform=platform,
        base='default',
      )
  for count in CORES:
    yield case.Case(
      f'cores: {count}',
      workload,
      size,
      core_limit=count,
      platform='cpu',
      base='default',
    )


PEAKS = {'float32': 'peak float32', 'bfloat16': 'peak bfloat16'}
PEAK_OF = {**PEAKS, 'bfloat16_operands': PEAKS['bfloat16']}
BANDWIDTH = 'peak bandwidth'


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """The variants, and how near each comes to the roofline.

  The roofline is the time that the device needs at least: the operations that
  the equations need at its measured peak, or its arguments and results moved
  once at its measured bandwidth, whichever is longer.
  """
  yield from result_tables(rows)
  yield tables.unmeasured(cases(False), rows)
  times = {n: 1e3 * r['median'] for n, r in _steps(rows) if 'median' in r}
  if times:
    yield plots.bars('steps', times, 'training step, ms')


def _steps(rows):
  for name, row in rows.items():
    if row.get('failure') != 'missing' and not name.startswith('peak '):
      yield name, row


def result_tables(rows: tables.Rows) -> tables.Report:
  """The peaks, the variants, and what isn't for this machine."""
  missing = [n for n, row in rows.items() if row.get('failure') == 'missing']
  steps = dict(_steps(rows))
  yield _peaks(rows)
  yield tables.by_row('variant', steps, _columns(rows))
  yield (
    'XLA counts the body of a loop once, so that its flops and bytes are a '
    'floor for whatever loops over time.'
  )
  if missing:
    yield f'Not for this machine: {", ".join(missing)}.'


def _peaks(rows):
  peaks = []
  for kind, name in PEAKS.items():
    if row := tables.good(rows, name):
      peaks.append(f'{row["flops_per_second"] / 1e9:,.0f} GFLOP/s in {kind}')
  if row := tables.good(rows, BANDWIDTH):
    peaks.append(f'{row["bytes_per_second"] / 1e9:,.1f} GB/s of a copy')
  return f'Peaks measured in the same run: {", ".join(peaks)}.' if peaks else ''


def _columns(rows):
  default = tables.good(rows, 'default')

  def relative(row):
    return tables.relative(row, default)

  def compiling(row):
    return ', '.join(
      tables.seconds(row[f'{what}_seconds']) for what in ('trace', 'compile')
    )

  def share(row):
    share = roofline_share(row, rows)
    return '-' if share is None else f'{100 * share:.1f} %'

  return {
    'step': tables.timed,
    'relative': relative,
    'tracing, compiling': compiling,
    'XLA temporaries': lambda row: tables.mebibytes(row['temp_bytes']),
    'peak memory': tables.peak_memory,
    'XLA flops': lambda row: _count(row['xla_flops']),
    'XLA bytes': lambda row: _count(row['xla_bytes_accessed']),
    'share of the roofline': share,
  }


def _count(value):
  return '-' if value is None else f'{value:.3g}'


def roofline_share(row: tables.Row, rows: tables.Rows) -> float | None:
  """The least time by the measured peaks over the time taken, or None."""
  overrides = row['parameters'].get('overrides') or {}
  multiplied = overrides.get('train.precision', 'float32')
  multiplied = overrides.get('train.quantized') or multiplied
  peak = tables.good(rows, PEAK_OF.get(multiplied))
  bandwidth = tables.good(rows, BANDWIDTH)
  if not peak or not bandwidth or 'needed_flops' not in row:
    return None
  moved = row['argument_bytes'] + row['output_bytes']
  least = max(
    row['needed_flops'] / peak['flops_per_second'],
    moved / bandwidth['bytes_per_second'],
  )
  return least / row['median']
