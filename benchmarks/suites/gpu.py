"""All that is measured on a GPU, within 20 minutes; refused without one.

The self-check first: a fast kernel that is wrong is worth nothing. Then the
recurrence beside flash-linear-attention's, the training step in its variants,
and decoding.

  python -m benchmarks.run --suite=gpu
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'gpu'
PEER = 'flash-linear-attention'
SHAPES = (  # B, L, H, K, P
  [32, 512, 1, 32, 64],
  [8, 1024, 8, 64, 64],
  [4, 2048, 16, 128, 128],
  [8, 8192, 8, 128, 256],
)
IMPLS = ('chunked', 'pallas', 'scan')
BFLOAT16 = {'train.precision': 'bfloat16'}
STEPS = {
  'chunked': {'recurrence.impl': 'chunked'},
  'chunked, bfloat16': {'recurrence.impl': 'chunked', **BFLOAT16},
  'pallas': {'recurrence.impl': 'pallas'},
  'pallas, bfloat16': {'recurrence.impl': 'pallas', **BFLOAT16},
  'scan': {'recurrence.impl': 'scan'},
}
TIMEOUT = 120.0  # seconds per case; most take 10


def cases(quick: bool) -> list[case.Case]:
  """Self-check, operators, training, decoding."""
  check = case.Case(
    'self-check', 'suites.gpu.self_check', repeats=0, timeout=300.0
  )
  return [check, *case.peaks(quick), *_operators(), *_steps()]


def _operators():
  for shape in SHAPES:
    for backward in (False, True):
      size = {'shape': shape, 'backward': backward}
      passes = 'forward and backward' if backward else 'forward'
      label = f'{"x".join(map(str, shape))}, {passes}'
      for impl in IMPLS:
        if impl != 'scan' or shape == SHAPES[0]:
          yield _case(
            f'{label}: ours, {impl}',
            'operators.recurrence',
            {**size, 'impl': impl},
            20,
            f'{label}: {PEER}',
          )
      yield _case(f'{label}: {PEER}', 'operators.chunk_gla', size, 20)


def _steps():
  for name, changed in (
    *((name, {'overrides': overrides}) for name, overrides in STEPS.items()),
    ('recurrence removed', {'cell': 'without_recurrence'}),
  ):
    yield _case(f'training: {name}', 'published_model.train_step', changed)
  yield _case('decode: one step', 'decoding.step', {}, 0)
  whole = {'way': 'loop'}
  yield _case('decode: whole generation', 'decoding.generate', whole, 50)
  for batch in (1, 32, 256):
    size = {'batch': batch, 'prefix': 64}
    yield _case(f'decode: loop, batch {batch}', 'decoding.loop', size)


def _case(name, workload, parameters, repeats=10, base=''):
  workload = f'workloads.{workload}'
  return case.Case(
    name, workload, parameters, repeats, timeout=TIMEOUT, base=base
  )


def self_check() -> tables.Row:
  """Checks as launch.selfcheck does, and names what is beyond its bound.

  Raises:
    RuntimeError: a check failed.
  """
  from rnn_jax import selfcheck

  results = [selfcheck.check(one) for one in selfcheck.cases()]
  wrong = [result for result in results if not result.passed]
  if wrong:
    raise RuntimeError(f'{len(wrong)} of {len(results)} wrong: {wrong[0]}')
  worst = max(result.error / result.bound for result in results)
  return {'checks': len(results), 'worst_share_of_bound': float(worst)}


COLUMNS = {
  'time': tables.timed,
  'XLA temporaries': lambda row: tables.mebibytes(row.get('temp_bytes')),
}


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """The recurrence beside the peer's, and what uses it."""
  operators, others = {}, {}
  for name, row in rows.items():
    if name.startswith(('training: ', 'decode: ')):
      others[name] = row
    elif ': ' in name:
      operators[name] = row
  yield tables.provenance(rows)
  if check := rows.get('self-check'):
    yield (
      f'Self-check: {tables.short(check)}.'
      if 'error' in check
      else f'Self-check: all {check["checks"]} checks within their bounds.'
    )
  if operators:
    head = '(B, L, H, K, P), pass | who | time | relative to the peer'
    yield tables.table(head, _compared(operators))
  if others:
    yield tables.by_row('what', others, COLUMNS)


def _compared(operators):
  for name, row in operators.items():
    size, _, who = name.partition(': ')
    peer = tables.good(operators, f'{size}: {PEER}')
    yield size, who, tables.timed(row), tables.relative(row, peer)
