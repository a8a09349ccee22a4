"""Vision-BDH's training step, in the published ways and in ours.

Pictures of 32 x 32 at the published size, 3,562,570 weights: forward and
backward passes, and AdamW's steps. The published first form takes batches of 64
in float32, makes its rotary angles in each pass and updates one parameter after
another. The optimized form is compiled, keeps the angles, fuses the optimizer
and takes batches of 2 x 128, accumulated. PyTorch runs both here, and each
change by itself; then ours. Softmax is compared apart, as PyTorch's fused
attention has no linear form. Pictures are in memory: the published speed-ups by
workers and prefetching aren't part of this.

What takes turns must fit into memory side by side, so a CPU takes an eighth of
the batches: 8, and 2 x 16. The suite `gpu` runs the same cases at full size.

  python -m benchmarks.run --suite=vision       6 minutes on 2 cores
"""

import math
from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import targets

TIMED = True

PICTURES = 32  # of a measurement
FIRST = 'PyTorch, first form'
LARGER = 'PyTorch, larger batches'
OPTIMIZED = 'PyTorch, optimized'
CACHED, LAST = {'cached': True}, {'channels_last': True}
FUSED, COMPILED = {'fused': True}, {'compiled': True}
CHANGED = FUSED | COMPILED
LARGE = {LARGER, OPTIMIZED, f'{OPTIMIZED}, bfloat16'}
THEIRS = {  # options of the network, and of its training
  FIRST: ({}, {}),
  'PyTorch, angles kept': (CACHED, {}),
  'PyTorch, channels last': (LAST, {}),
  'PyTorch, fused AdamW': ({}, FUSED),
  LARGER: ({}, {}),
  'PyTorch, compiled': ({}, COMPILED),
  OPTIMIZED: (CACHED | LAST, CHANGED),
  f'{OPTIMIZED}, bfloat16': (CACHED | LAST, CHANGED | {'bfloat16': True}),
}
FLOAT32 = targets.FLOAT32
OURS = {  # overrides of configs/cifar10_bdh.py, and batches of a measurement
  'ours, small batches': (FLOAT32 | {'train.accumulate': 1}, 4),
  'ours, layers scanned': (FLOAT32 | targets.SCANNED, 1),
  'ours': (FLOAT32, 1),
  'ours, bfloat16': ({}, 1),
}
SOFTMAX = 'softmax: '
BY_HAND = f'{SOFTMAX}PyTorch, by hand'
FUSED_ATTENTION = f'{SOFTMAX}PyTorch, fused attention'
CLAIMS = (  # a published factor, and the rows after and before the change
  ('Batches of 2 x 128 for 64', 1.3, LARGER, FIRST),
  ('The compiler', 1.2, 'PyTorch, compiled', FIRST),
  ('Fused AdamW', 1.1, 'PyTorch, fused AdamW', FIRST),
  ('Angles that are kept', 1.1, 'PyTorch, angles kept', FIRST),
  ('Channels last in memory', 1.1, 'PyTorch, channels last', FIRST),
  ('Fused attention', 2.5, FUSED_ATTENTION, BY_HAND),
  ('All but fused attention', 2.5, OPTIMIZED, FIRST),
)
SMALL = {  # sizes to see that it runs: of theirs, and of ours
  'width': 16,
  'layers': 1,
  'heads': 2,
  'neurons': 16,
}
OURS_SMALL = {
  'model.width': 16,
  'model.layers': 1,
  'model.unroll': 1,
  'cell.heads': 2,
  'cell.neurons': 16,
}
REPEATS = 5


def cases(quick: bool) -> list[case.Case]:
  """PyTorch's forms and ours, each with the first, then those with softmax."""
  return cases_of(PICTURES, 'cpu', quick)


def cases_of(pictures: int, device: str, quick: bool) -> list[case.Case]:
  """The cases at so many images per measurement, PyTorch's on that device."""
  small = SMALL if quick else {}
  softmax = {'weights': 'softmax'}
  theirs = THEIRS | {
    BY_HAND: (softmax, {}),
    FUSED_ATTENTION: (softmax | FUSED, {}),
  }
  ours = OURS | {f'{SOFTMAX}ours': (FLOAT32, 1)}
  listed = [
    case.Case(
      name,
      'workloads.torch_vision.train',
      {'model': network | small, 'pictures': pictures, 'device': device}
      | _batches(name, pictures)
      | training,
      REPEATS,
      base=_base(name),
    )
    for name, (network, training) in theirs.items()
  ]
  listed += [
    case.Case(
      name,
      'suites.vision.train',
      {
        'config': [
          'cifar10_bdh',
          'v2_softmax' if name.startswith(SOFTMAX) else 'v2',
          overrides | (OURS_SMALL if quick else {}),
        ],
        'pictures': pictures,
        'rows': pictures // batches,
      },
      REPEATS,
      base=_base(name),
    )
    for name, (overrides, batches) in ours.items()
  ]
  return sorted(listed, key=lambda one: one.name.startswith(SOFTMAX))


def _base(name):
  return BY_HAND if name.startswith(SOFTMAX) else FIRST


def _batches(name, pictures):
  if name in LARGE:
    return {'batch': pictures // 2, 'accumulate': 2}
  return {'batch': pictures // 4}


def train(
  repeats: int, config: list[Any], pictures: int, rows: int
) -> tables.Row:
  """Our training steps on so many images.

  Args:
    repeats: how often.
    config: arguments of configs.parse.
    pictures: that are one measurement.
    rows: images of a step.
  """
  import jax

  from benchmarks.harness import measure
  from benchmarks.workloads import configs
  from benchmarks.workloads import programs
  from benchmarks.workloads import published_model
  from rnn_jax.profiling import workload

  parsed = configs.parse(*config)
  made = workload.make(parsed)
  program, values = programs.compile_traced(
    lambda: made.programs.trace_train(rows, parsed.data.length)
  )
  state = jax.eval_shape(lambda: made.programs.states.init(rows))
  runner = workload.Runner(made, rows, program)
  values |= measure.with_memory(lambda: runner.run(pictures // rows), repeats)
  values |= programs.device_peak()
  return values | {
    'weights': published_model.count(state.params),
    'pictures_per_second': pictures / values['median'],
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Images per second, and each published speed-up compared with ours."""
  measured, found = result_tables(rows)
  yield measured
  rates = {
    name: row['pictures_per_second']
    for name, row in rows.items()
    if 'pictures_per_second' in row
  }
  if rates:
    yield plots.bars('rates', rates, 'images per second')
  yield found
  yield tables.unmeasured(cases(False), rows)


def result_tables(rows: tables.Rows) -> tables.Report:
  """A table of all rows, and a list of the published speed-ups."""
  lines = [
    (
      name,
      tables.timed(row),
      _rate(row),
      tables.speed(row, rows.get(_base(name))),
      tables.peak_memory(row),
    )
    for name, row in rows.items()
  ]
  pictures = rows.get(FIRST, {}).get('parameters', {}).get('pictures', PICTURES)
  yield tables.table(
    f'variant | {pictures} images | images per second | times as fast as '
    'the first | peak memory',
    lines,
  )
  yield '\n'.join(
    f'* {change}, {claimed} times as fast: '
    + _found(claimed, rows.get(after), rows.get(before))
    for change, claimed, after, before in CLAIMS
  )


def _rate(row):
  rate = row.get('pictures_per_second')
  return '-' if rate is None else tables.digits(rate)


def _found(claimed, after, before):
  """What was measured of a published speed-up."""
  measured = tables.ratio(before, after)
  if measured is None:
    return 'not measured here.'
  if tables.is_noisy(after):
    return f'{measured:.3g} times here, too noisy to say.'
  low, high = _interval(measured, after, before)
  if low <= 1 <= high:
    return f'**corrected**, none here ({low:.2f} to {high:.2f} times).'
  return tables.verdict(claimed, measured)


def _interval(measured, after, before):
  """That of rounds, or by two deviations where each was measured alone."""
  if after.get('base') == before['case']:
    return sorted(1 / after[end] for end in tables.ENDS)
  shares = [row['deviation'] / row['median'] for row in (after, before)]
  width = 2 * measured * math.hypot(*shares)
  return measured - width, measured + width
