"""Vision-BDH's training step, in the published ways and in ours.

Pictures of 32 x 16 at the published size, 3,562,570 weights: forward and
backward passes, and AdamW's steps. The published first form takes batches of 64
in float32, makes its rotary angles in each pass and updates one parameter after
another. The optimized form is compiled, keeps the angles, fuses the optimizer
and takes batches of 2 x 128, accumulated. PyTorch runs both here, and each
change by itself; then ours, all with an eighth of these batches: what takes
turns must fit into memory side by side. Softmax is compared apart, as PyTorch's
fused attention has no linear form. Pictures are in memory: the published
speed-ups by workers and prefetching aren't part of this.

  python -m benchmarks.run --suite=vision       6 minutes on 2 cores
"""

from typing import Any

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables
from benchmarks.suites import targets

TIMED = True

PICTURES = 32
FIRST = 'PyTorch, first form'
OPTIMIZED = 'PyTorch, optimized'
BATCHES = {'batch': 16, 'accumulate': 2}
CACHED, LAST = {'cached': True}, {'channels_last': True}
FUSED, COMPILED = {'fused': True}, {'compiled': True}
THEIRS = {  # options of the network, and of its training
  FIRST: ({}, {}),
  'PyTorch, angles kept': (CACHED, {}),
  'PyTorch, channels last': (LAST, {}),
  'PyTorch, fused AdamW': ({}, FUSED),
  'PyTorch, batches of 2 x 16': ({}, BATCHES),
  'PyTorch, compiled': ({}, COMPILED),
  OPTIMIZED: (CACHED | LAST, BATCHES | FUSED | COMPILED),
}
FLOAT32 = targets.FLOAT32
OURS = {  # overrides of configs/cifar10_bdh.py, and rows of a batch
  'ours, batches of 8': (FLOAT32 | {'train.accumulate': 1}, 8),
  'ours, layers scanned': (FLOAT32 | targets.SCANNED, PICTURES),
  'ours': (FLOAT32, PICTURES),
  'ours, bfloat16': ({}, PICTURES),
}
SOFTMAX = 'softmax: '
BY_HAND = f'{SOFTMAX}PyTorch, by hand'
FUSED_ATTENTION = f'{SOFTMAX}PyTorch, fused attention'
CLAIMS = (  # a published factor, and the rows after and before the change
  ('Batches of 2 x 16 for 8', 1.3, 'PyTorch, batches of 2 x 16', FIRST),
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
  """PyTorch's forms and ours beside the first, then those with softmax."""
  small = SMALL if quick else {}
  listed = [
    _theirs(name, network | small, training)
    for name, (network, training) in THEIRS.items()
  ]
  listed += [_ours(name, *ours, quick) for name, ours in OURS.items()]
  softmax = {'weights': 'softmax'} | small
  return [
    *listed,
    _theirs(BY_HAND, softmax, {}),
    _theirs(FUSED_ATTENTION, softmax | FUSED, {}),
    _ours(f'{SOFTMAX}ours', FLOAT32, PICTURES, quick, 'v2_softmax'),
  ]


def _base(name):
  return BY_HAND if name.startswith(SOFTMAX) else FIRST


def _theirs(name, network, training):
  size = {'pictures': PICTURES, 'batch': 8}
  return case.Case(
    name,
    'workloads.torch_vision.train',
    {'model': network} | size | training,
    REPEATS,
    base=_base(name),
  )


def _ours(name, overrides, rows, quick, model='v2'):
  return case.Case(
    name,
    'suites.vision.train',
    {
      'config': [
        'cifar10_bdh',
        model,
        overrides | (OURS_SMALL if quick else {}),
      ],
      'rows': rows,
    },
    REPEATS,
    base=_base(name),
  )


def train(repeats: int, config: list[Any], rows: int) -> tables.Row:
  """Our training steps on so many pictures.

  Args:
    repeats: how often.
    config: arguments of configs.parse.
    rows: pictures of a step.
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
  state = jax.eval_shape(lambda: made.programs.init(0, rows))
  runner = workload.Runner(made, rows, program)
  values |= measure.with_memory(lambda: runner.run(PICTURES // rows), repeats)
  return values | {
    'weights': published_model.count(state.params),
    'pictures_per_second': PICTURES / values['median'],
  }


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """Pictures per second, and each published speed-up beside ours."""
  yield tables.provenance(rows)
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
  yield tables.table(
    'variant | 32 pictures | pictures per second | times as fast as the first '
    '| peak memory',
    lines,
  )
  rates = {
    name: row['pictures_per_second']
    for name, row in rows.items()
    if 'pictures_per_second' in row
  }
  if rates:
    yield plots.bars('rates', rates, 'pictures per second')
  yield '\n'.join(f'* {line}' for line in claims(rows))
  yield tables.unmeasured(cases(False), rows)


def _rate(row):
  rate = row.get('pictures_per_second')
  return '-' if rate is None else tables.digits(rate)


def claims(rows: tables.Rows) -> list[str]:
  """A sentence for each published speed-up, with what was measured."""
  return [
    f'{change}, {claimed} times as fast: '
    + _found(claimed, rows.get(after), rows.get(before))
    for change, claimed, after, before in CLAIMS
  ]


def _found(claimed, after, before):
  measured = tables.ratio(before, after)
  if measured is None:
    return 'not measured here.'
  low, high = sorted(1 / after[end] for end in tables.ENDS)
  if tables.is_noisy(after):
    return f'{measured:.3g} times here, too noisy to say.'
  if low <= 1 <= high:
    return f'**corrected**, none here ({low:.2f} to {high:.2f} times).'
  return tables.verdict(claimed, measured)
