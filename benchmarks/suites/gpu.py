"""All that is measured on a GPU, the most wanted first.

The training steps of language models of 1.3 billion parameters come first. Then
checks: a fast kernel that is wrong is worth nothing. Then the recurrence with
one decay a head, that with one for each key beside flash-linear-attention's and
jax-linear-attention's, the delta rule, the published tables, Vision-BDH's step
at its full batches, whole training steps of configs with their memory,
decoding, and the variants of the compiled step.

  python -m benchmarks.run --suite=gpu --resume [--minutes=8]

Each case has its process, and its row as soon as it is done. Several start and
compile side by side (`at_once`); then one after the other has the GPU alone.
Without a GPU, --rehearse runs all of it (see harness/rehearsal.py).
gpu_bundle.py packs what a machine without a network lacks.

On an H100 or H200 with 16 cores, ten cases of our and jax-linear-attention's
kernels and the checks take a minute. flash-linear-attention compiles about 300
tiles for each pair of widths, which takes minutes more, and measures each for
25 ms. For the matmuls of a whole model XLA compiles and times many tiles:
thirteen such programs side by side weren't done after 170 seconds, nine not
after 120; two whole training runs compiled theirs in 44 and 57. float32 has
more to try: five steps of Vision-BDH took 118 to 162 seconds.
"""

import collections
import dataclasses
import itertools
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import rehearsal
from benchmarks.harness import rows as rows_lib
from benchmarks.harness import tables
from benchmarks.suites import decode
from benchmarks.suites import large
from benchmarks.suites import published
from benchmarks.suites import targets
from benchmarks.suites import vision
from benchmarks.suites import xla_variants

PLATFORM = 'gpu'
KERNELS_AT_ONCE, PROGRAMS_AT_ONCE = 16, 4
COMPILE_SOON = ('workloads.gpu_kernels.', 'workloads.torch_')
AHEAD = (
  'workloads.gpu_kernels.passes',
  'workloads.published_model.forward',
  'workloads.published_model.train_step',
  'workloads.decoding.step',
  'suites.gpu.step',
)
CHECKED = {'pallas': ('float32', 'tf32', 'bfloat16'), 'chunked': ('float32',)}
CHECKED_WIDTHS = (64, 128)  # of keys and values, in bfloat16
SHAPES = (  # B, L, H, K, P
  [4, 2048, 16, 128, 128],
  [8, 2048, 4, 64, 64],
  [32, 512, 1, 32, 64],
  [1, 16384, 16, 128, 128],
  [8, 256, 16, 64, 64],
  [256, 128, 4, 32, 64],
)
KERNELS = 'ours, kernels'
FLA = ('chunk_gla', 'fused_recurrent_gla', 'chunk_gated_delta_rule')
PEERS = {
  'jax-linear-attention': 'jla',
  **{f'flash-linear-attention, {name}': name for name in FLA[:2]},
}
CHUNKED = 'ours, chunked'  # at the first shape only, as it compiles long
WHO = {KERNELS: 'pallas', CHUNKED: 'chunked', **PEERS}
SHARED = 'shared'  # of selfcheck.gla.DECAYS
DELTA = 'delta rule, '  # in front of its cases
CONVOLUTIONS = {  # heads that are normed: name
  0: 'convolution, kernels',
  4: 'convolution and norm, kernels',
}
DELTA_PEERS = {
  'flash-linear-attention, chunk_gated_delta_rule': 'chunk_gated_delta_rule'
}
DELTA_WHO = {KERNELS: 'pallas', CHUNKED: 'chunked', **DELTA_PEERS}
DELTA_SHAPES = SHAPES[:2]
SSD = 'one decay a head, '  # in front of its cases, with keys of all heads
SSD_WHO = {KERNELS: 'pallas', 'ours, a decay for each key': 'auto'}
SSD_SHAPES = ([16, 4096, 64, 128, 64], [4, 2048, 32, 128, 64])
PALLAS = {'recurrence.impl': 'pallas'}
BFLOAT16 = {'train.precision': 'bfloat16'}
FORWARD = ('fused', 'kernels')  # of OURS
OURS = {
  'fused': {},
  'kernels': PALLAS,
  'kernels, bfloat16': PALLAS | BFLOAT16,
  'scan': {'recurrence.impl': 'scan'},
}
# Of the suite `published`; PyTorch's run on the GPU.
PUBLISHED = (
  'forward: PyTorch, indexed, separate, batch 1',
  'forward: PyTorch, indexed, separate, batch 32',
  'forward: PyTorch, indexed, fused, batch 32',
  'forward: PyTorch, indexed, fused, checkpointed, batch 32',
  'forward: PyTorch, careful, fused, batch 32',
  'training: PyTorch, indexed, fused, batch 32',
  'training: PyTorch, careful, fused, batch 32',
  'training: ours, recurrence removed, batch 32',
  'generation: ours, rerun',
  'generation: ours, stepwise',
  'generation: ours, one loop',
  'generation: PyTorch, indexed, rerun',
  'generation: PyTorch, careful, stepwise',
)
TIMED_KINDS = ('forward: ', 'training: ', 'generation: ')
STEPS = {  # arguments of configs.parse, rows
  'stdlib_bytes': targets.CONFIGS['stdlib_bytes'],
  'published': targets.CONFIGS['published'],
  'chatgot, gpt2, bfloat16': targets.CONFIGS['chatgot, gpt2, bfloat16'],
  'cifar10_bdh': (['cifar10_bdh', 'v2'], 256),
  'cifar10_bdh, float32': (['cifar10_bdh', 'v2', targets.FLOAT32], 256),
  'cifar10_bdh, v1': (['cifar10_bdh', 'v1'], 256),
  'cifar10_bdh, v2_softmax': (['cifar10_bdh', 'v2_softmax'], 256),
  'cifar10_bdh, vit': (['cifar10_bdh', 'vit'], 256),
  'cifar10_bdh, scanned': (['cifar10_bdh', 'v2', targets.SCANNED], 256),
  'cifar10_bdh, vit, scanned': (['cifar10_bdh', 'vit', targets.SCANNED], 256),
}
LARGE = '1.3B: '  # in front of its cases
LARGE_STEPS = tuple(f'{model}_{large.SIZES[-1]}' for model in large.MODELS)
PICTURES = 256  # Vision-BDH's published batches: 64, and 2 x 128
DECODE = (
  'one step',
  'loop, batch 1',
  'loop, batch 16',
  'loop, batch 256',
  'prefill, 4096',
)
DEFAULT = 'training: ours, fused, batch 32'  # what variants change
VARIANTS = (
  'peak float32',
  'peak bfloat16',
  'peak bandwidth',
  'scan, remat sqrt',
  'layers scanned',
  'tf32',
  'bfloat16',
  'XLA: no command buffers',
)
LIMIT = 420.0  # seconds of a case, with those that it is compared with
REPEATS = 10
INTERPRETED = {'TRITON_INTERPRET': '1'}


def cases(quick: bool) -> list[case.Case]:
  """The most wanted first."""
  listed = [
    *_large(quick),
    *_checks(quick),
    *_kernels(quick),
    *_published(quick),
    *_vision(quick),
    *_steps(quick),
    *_chosen('decode: ', decode.cases(False), DECODE),
    *_chosen('variant: ', xla_variants.cases(quick), VARIANTS),
  ]
  return [
    dataclasses.replace(
      one,
      platform='',
      base='',
      repeats=min(one.repeats, REPEATS),
      timeout=LIMIT,
    )
    for one in listed
  ]


def at_once(one: case.Case) -> int:
  """How many cases like this one compile side by side."""
  small = one.workload.startswith(COMPILE_SOON)
  return KERNELS_AT_ONCE if small else PROGRAMS_AT_ONCE


def compiles_ahead(one: case.Case) -> bool:
  """Whether a case can be compiled for a GPU that isn't attached."""
  return one.workload in AHEAD and one.parameters.get('who') not in FLA


def _large(quick):
  for name in LARGE_STEPS:
    size = {
      'config': ['large', name, large.small(name) if quick else {}],
      'rows': 2 if quick else large.ROWS,
    }
    made = _case(f'{LARGE}{name}', 'suites.gpu.step', size, REPEATS)
    yield dataclasses.replace(made, environment=large.ENVIRONMENT)


def _checks(quick):
  for operands in CHECKED['pallas']:
    given = {'impl': 'pallas', 'operands': operands, 'decay': SHARED}
    name = f'check: {SSD}{KERNELS}, {operands}'
    yield _case(name, 'suites.gpu.check', given, 0)
  for impl, formats in CHECKED.items():
    for operands in formats:
      given = {'impl': impl, 'operands': operands}
      yield _case(f'check: {impl}, {operands}', 'suites.gpu.check', given, 0)
  for width in CHECKED_WIDTHS:
    given = {'who': 'pallas', 'width': width}
    name = f'check: {KERNELS}, {width} x {width}'
    yield _case(name, 'workloads.gpu_kernels.check', given, 0)
  for name, who in PEERS.items():
    yield _peer(f'check: {name}', 'check', who, {}, quick, 0)
  for name, who in DELTA_WHO.items():
    given = (f'check: {DELTA}{name}', 'check_delta', who, {})
    yield _peer(*given, quick, 0)
  for heads, name in CONVOLUTIONS.items():
    given = {'heads': heads}
    workload = 'workloads.gpu_kernels.check_convolution'
    yield _case(f'check: {name}', workload, given, 0)


def _kernels(quick):
  for prefix, peers, shapes, rule in (
    (SSD, SSD_WHO, SSD_SHAPES, {'rule': 'ssd'}),
    ('', WHO, SHAPES, {}),
    (DELTA, DELTA_WHO, DELTA_SHAPES, {'rule': 'delta'}),
  ):
    for shape, (name, who) in itertools.product(shapes, peers.items()):
      if name == CHUNKED and shape != shapes[0]:
        continue
      # Triton's interpreter takes seconds a step.
      small = [1, 16 if who in FLA else 64, 1, *shape[3:]]
      size = {'shape': small if quick else shape, **rule}
      label = f'{prefix}{"x".join(map(str, shape))}: {name}'
      yield _peer(label, 'passes', who, size, quick, REPEATS)


def _peer(name, workload, who, size, quick, repeats):
  """A case of gpu_kernels, whose Triton is interpreted in a rehearsal."""
  given, environment = {'who': who, **size}, {}
  if who in FLA and quick:
    given, environment = given | {'device': 'cpu'}, INTERPRETED
  workload = f'workloads.gpu_kernels.{workload}'
  made = _case(name, workload, given, repeats)
  return dataclasses.replace(made, environment=environment)


def _published(quick):
  size = {'batch': 2, 'length': 32} if quick else {}
  sequences = {'sequences': 4 if quick else published.SEQUENCES}
  for kind, workload, names, others in (
    ('training', 'train_step', OURS, {}),
    ('forward', 'forward', FORWARD, sequences),
  ):
    for name in names:
      yield _case(
        f'{kind}: ours, {name}, batch 32',
        f'workloads.published_model.{workload}',
        {'overrides': OURS[name], **size, **others},
        REPEATS,
      )
  device = {'device': 'cpu' if quick else 'cuda'}
  every = zip(published.cases(quick), published.cases(False), strict=True)
  for one, whole in every:
    if whole.name in PUBLISHED:
      given = dict(one.parameters)
      if 'model' in given:
        given['model'] = given['model'] | device
      yield dataclasses.replace(one, name=whole.name, parameters=given)


def _vision(quick):
  size = (8, 'cpu') if quick else (PICTURES, 'cuda')
  every = vision.cases_of(*size, quick)
  # PyTorch's first: what is alike compiles side by side.
  for one in sorted(every, key=lambda one: 'torch' not in one.workload):
    yield dataclasses.replace(one, name=f'vision: {one.name}')


def _steps(quick):
  for name, (config, rows) in STEPS.items():
    size = {'config': config, 'rows': 2 if quick else rows}
    yield _case(f'step: {name}', 'suites.gpu.step', size, REPEATS)


def _chosen(prefix, every, names):
  for one in every:
    if one.name in names:
      yield dataclasses.replace(one, name=prefix + one.name)


def _case(name, workload, parameters, repeats):
  return case.Case(name, workload, parameters, repeats)


def check(impl: str, operands: str, decay: str = 'key') -> tables.Row:
  """Runs launch.selfcheck's longest cases of gla's `impl` with such decays.

  Raises:
    RuntimeError: the device can't run any.
  """
  from rnn_jax.selfcheck import gla as selfcheck

  asked = (impl, operands, decay)
  chosen = [
    one
    for one in selfcheck.cases()
    if (one.impl, one.operands, one.decay) == asked
  ]
  longest = max((one.L for one in chosen), default=0)
  results = [selfcheck.check(one) for one in chosen if longest == one.L]
  if not results:
    raise RuntimeError(f'{impl} does not run on this device')
  worst = max(results, key=lambda result: result.error / result.bound)
  return {
    'checks': len(results),
    'passed': sum(result.passed for result in results),
    'worst': worst.case._asdict(),
    'errors': {worst.where: worst.error},
    'bound': worst.bound,
  }


def step(repeats: int, config: list[Any], rows: int) -> tables.Row:
  """A training step: its time, and its memory as compiled and as allocated.

  Args:
    repeats: how many steps are timed.
    config: arguments of configs.parse.
    rows: of a batch.
  """
  from benchmarks.harness import measure
  from benchmarks.harness import turns
  from benchmarks.workloads import configs
  from benchmarks.workloads import programs
  from rnn_jax.profiling import workload
  from rnn_jax.system import target

  parsed = configs.parse(*config)
  made = workload.make(parsed)
  compiled, values = programs.compile_traced(
    lambda: made.programs.trace_train(rows, parsed.data.length)
  )
  turns.alone()  # others that compile beside it leave too little memory
  runner = workload.Runner(made, rows, compiled)
  values |= measure.repeat(lambda: runner.run(1), repeats, warmups=3)
  source, peak = runner.peak()
  return values | {
    'total': target.memory(compiled).total,
    'device_peak_bytes': peak,
    'source': source,
    'length': parsed.data.length,
    'rows_per_second': rows / values['median'],
  }


def select(rows: list[tables.Row]) -> dict[str, tables.Rows]:
  """What was measured, by GPU, most rows first; else what was rehearsed."""
  measured, rehearsed = {}, []
  for row in rows:
    if 'rehearsal' not in row:
      measured.setdefault(row['device'], []).append(row)
    else:
      rehearsed.append(row | {'quick': False})
  if measured:
    by_device = {
      device.replace(' ', '_'): tables.newest(some)[PLATFORM]
      for device, some in measured.items()
    }
    most = sorted(by_device, key=lambda name: -len(by_device[name]))
    return {name: by_device[name] for name in most}
  # What a rehearsal shows doesn't depend on the processor.
  of_cases = tables.newest(rehearsed, of_one_device=False)
  names = dict.fromkeys(case.name for case in cases(False))
  return {
    platform: {name: rows[name] for name in names | rows if name in rows}
    for platform, rows in of_cases.items()
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """One page of all results, or of a rehearsal."""
  if any('rehearsal' in row for row in rows.values()):
    yield from _rehearsed(rows)
    return
  yield from _checked(tables.with_prefix(rows, 'check: '))
  yield from _large_steps(tables.with_prefix(rows, LARGE))
  yield from _compared(rows)
  if any(tables.with_prefix(rows, kind) for kind in TIMED_KINDS):
    yield from published.result_tables(rows)
  yield from _whole_steps(tables.with_prefix(rows, 'step: '))
  if some := tables.with_prefix(rows, 'vision: '):
    yield "**Vision-BDH's training step**, in float32 where nothing is said."
    yield from vision.result_tables(some)
  if some := tables.with_prefix(rows, 'decode: '):
    yield '**Decoding** by the published model.'
    yield tables.by_row('what', some, DECODED)
  if some := tables.with_prefix(rows, 'variant: '):
    if DEFAULT in rows:
      some['default'] = rows[DEFAULT]
    yield '**Variants** of its training step, batch 32, length 512.'
    yield from xla_variants.result_tables(some)
  yield _unmeasured(rows)


def _unmeasured(rows):
  """How many cases of each kind have no row of this GPU; or ''."""
  every = collections.Counter(map(_kind, cases(False)))
  left = collections.Counter(
    _kind(one) for one in cases(False) if one.name not in rows
  )
  counts = (f'{kind} {left[kind]} of {every[kind]}' for kind in left)
  return f'Not measured on this GPU: {"; ".join(counts)}.' if left else ''


def _kind(one):
  if one.workload == 'workloads.gpu_kernels.passes':
    return 'kernels'
  return one.name.partition(': ')[0]


def _checked(rows):
  if not rows:
    return
  yield '**Checks** against float64: the largest error of any tensor.'
  yield tables.by_row(
    'who',
    rows,
    {
      'error': lambda row: f'{max(row["errors"].values()):.1e}',
      'in': lambda row: max(row['errors'], key=row['errors'].get),
      'bound': lambda row: f'{row["bound"]:.1e}',
      'within': lambda row: f'{row["passed"]} of {row["checks"]}',
    },
  )


PASSES = {'forward': 'forward', 'forward and backward': ''}


def _compared(rows):
  """Kernels by shape, after the shapes at which a peer is faster."""
  lines, slower, measured = [], [], 0
  for shape in [
    prefix + 'x'.join(map(str, shape))
    for prefix, some in ((SSD, SSD_SHAPES), ('', SHAPES), (DELTA, DELTA_SHAPES))
    for shape in some
  ]:
    some = tables.with_prefix(rows, f'{shape}: ')
    for name, row in some.items():
      cells = []
      for label, key in PASSES.items():
        ours, theirs = _passes(some.get(KERNELS), key), _passes(row, key)
        ratio = tables.ratio(theirs, ours)
        peer = name in PEERS or name in DELTA_PEERS
        measured += ratio is not None and peer
        if ratio is not None and ratio < 1 and peer:
          slower.append(f'{name} at {shape}, {label} ({tables.times(ratio)})')
        cells += [tables.timed(theirs), tables.relative(theirs, ours)]
      lines.append([shape, name, *cells, tables.peak_memory(row)])
  if not lines:
    return
  yield '**Kernels**, bfloat16, times and their ratio to our kernels.'
  if measured:
    faster = '; '.join(slower) or 'none'
    yield f'Peers that are faster, of {measured} ratios: {faster}.'
  yield tables.table(
    'B, L, H, K, P | who | forward | ratio | forward and backward | ratio | '
    'peak memory',
    lines,
  )


def _passes(row, key):
  """The row of both passes, or its part on one of them."""
  if not row or not key or 'error' in row:
    return row
  return {'case': row['case'], **row[key]}


def _large_steps(rows):
  if not rows:
    return
  yield (
    '**Training steps** of 1.3 billion parameters (configs/large.py), and what '
    'the suite `large` predicted of them.'
  )
  predicted = next(iter(large.select(rows_lib.read('large')).values()), {})
  known = {
    name: row['predicted']['tokens_per_second']
    for name, row in predicted.items()
    if 'predicted' in row
  }
  rows = {name: row | {'known': known.get(name)} for name, row in rows.items()}
  yield tables.by_row(
    'config',
    rows,
    {
      'time': tables.timed,
      'tokens per second': lambda row: tables.rate(_tokens(row)),
      'predicted': lambda row: tables.rate(row['known']),
      'allocated': lambda row: tables.mebibytes(row['device_peak_bytes']),
      'compiled': lambda row: tables.mebibytes(row['total']),
    },
  )


def _tokens(row):
  return row['rows_per_second'] * row['length']


def _whole_steps(rows):
  if not rows:
    return
  yield (
    '**Training steps** of configs on random batches: rows are texts or '
    'images. Memory is the most that was allocated, as compiled for this '
    "GPU, and as compiled where it wasn't attached (suite `targets`)."
  )
  yield tables.by_row(
    'config',
    rows,
    {
      'rows': lambda row: f'{row["parameters"]["rows"]}',
      'tokens of a row': lambda row: f'{row["length"]:,}',
      'time': tables.timed,
      'rows per second': lambda row: tables.rate(row['rows_per_second']),
      'allocated': lambda row: tables.mebibytes(row['device_peak_bytes']),
      'compiled': lambda row: tables.mebibytes(row['total']),
      'compiled without it': lambda row: tables.mebibytes(_predicted(row)),
    },
  )


def _predicted(row):
  """Bytes of the step as the suite `targets` compiled it; None: it didn't."""
  # An H200 has an H100's multiprocessors.
  name = row['device'].lower().replace('h200', 'h100')
  for other in targets.predicted(row['parameters']):
    for target, memory in other['memory'].items():
      if target in name:
        return memory['total']
  return None


DECODED = {
  'time': tables.timed,
  'p99': lambda row: tables.seconds(row['p99']) if 'p99' in row else '-',
  'tokens per second': lambda row: tables.rate(row.get('tokens_per_second')),
}


def _rehearsed(rows):
  """What ran interpreted, and what the compiler says of the rest."""
  ran = [name for name, row in rows.items() if 'error' not in row]
  yield (
    'Not measured yet: `python -m benchmarks.run --suite=gpu`. '
    f'**Rehearsed** without a GPU: {len(ran)} of {len(rows)} cases ran on the '
    'CPU at small sizes, kernels interpreted.'
  )
  yield from _checked(tables.with_prefix(rows, 'check: '))
  failed = {}
  for name, row in rows.items():
    if 'error' in row:
      failed.setdefault(tables.short(row), []).append(name)
  for error, names in failed.items():
    yield f'{"; ".join(names)}: {error}'
  ahead = {
    name: row['rehearsal'][rehearsal.TARGET]
    for name, row in rows.items()
    if row['rehearsal']
  }
  if ahead:
    yield (
      f'Compiled for an {rehearsal.TARGET.upper()} at full sizes; registers, '
      'bytes spilled and shared memory are of the kernel that takes most. '
      'jax-linear-attention, which looks for an attached GPU, compiles its '
      'chunked form.'
    )
    yield tables.by_row('case', ahead, COMPILED)
  left = tables.unmeasured(cases(False), rows)
  yield left.replace('measured', 'rehearsed')


COMPILED = {
  'compiling': lambda row: tables.seconds(row['compile_seconds']),
  'kernels': lambda row: str(row['kernels']),
  'registers': lambda row: str(row['registers']),
  'spilled': lambda row: str(row['spilled']),
  'shared': lambda row: f'{row["shared"] / 2**10:.0f} KiB',
  'arguments': lambda row: tables.mebibytes(row['argument_bytes']),
  'temporaries': lambda row: tables.mebibytes(row['temp_bytes']),
}
