"""The same work under two versions of jax, in turns.

The other version is that of another environment, by default the one that `make
test-other` creates; BENCHMARK_PYTHON names another one's interpreter.

  BENCHMARK_PYTHON=.venv-other/bin/python \\
      python -m benchmarks.run --suite=versions    10 minutes on 2 cores
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True
PLATFORM = 'cpu'
OTHER = ', other version'
ROUNDS = 20
STEP = 'workloads.published_model.train_step'
LAYER = 'suites.recurrent_layers.training'
RECURRENCE = {'shape': [8, 512, 4, 64, 64], 'backward': True}
SMALL_STEP = {'batch': 2, 'length': 32}
SMALL_RECURRENCE = {'shape': [1, 64, 1, 4, 4]}
SMALL_LAYER = {'shape': [2, 4, 8]}
SMALL_PREFIX = {'prefix': 8}
WORK = {  # workload, parameters, those of a rehearsal
  'SimpleRNN, training step': (STEP, {}, SMALL_STEP),
  **{
    f'SimpleRNN, training step, {impl}': (
      STEP,
      {'overrides': {'recurrence.impl': impl}},
      SMALL_STEP,
    )
    for impl in ('chunked', 'scan')
  },
  'Transformer, training step': (
    'workloads.attention_model.train_step',
    {'batch': 8},
    SMALL_STEP,
  ),
  **{
    f'gated linear attention, {impl}, both ways': (
      'workloads.operators.recurrence',
      {**RECURRENCE, 'impl': impl, 'dtype': 'float32'},
      SMALL_RECURRENCE,
    )
    for impl in ('native', 'chunked')
  },
  **{
    f'delta rule, {impl}, both ways': (
      'workloads.operators.delta',
      {**RECURRENCE, 'form': 'rule', 'impl': impl},
      SMALL_RECURRENCE,
    )
    for impl in ('native', 'chunked')
  },
  **{
    f'LSTM layer, {impl}, both ways': (
      LAYER,
      {'cell': 'lstm', 'shape': [32, 512, 128], 'impl': impl},
      SMALL_LAYER,
    )
    for impl in ('native', 'scan')
  },
  'attention, blocked, both ways': (
    'workloads.operators.attention',
    {'shape': [1, 2048, 8, 64, 64], 'options': {'impl': 'blocked'}},
    {'shape': [1, 64, 1, 8, 8]},
  ),
  'prefill': ('workloads.decoding.prefill', {'prefix': 1024}, SMALL_PREFIX),
  'generation': (
    'workloads.decoding.generate',
    {'way': 'loop'},
    {**SMALL_PREFIX, 'new_tokens': 4},
  ),
}


def cases(quick: bool) -> list[case.Case]:
  """Each work under this process's jax, then under the other one."""
  return [
    case.Case(
      name + suffix,
      workload,
      parameters | (small if quick else {}),
      ROUNDS,
      base=name,
      interpreter=interpreter,
    )
    for name, (workload, parameters, small) in WORK.items()
    for suffix, interpreter in (('', ''), (OTHER, case.other_python()))
  ]


def provenance(rows: tables.Rows) -> str:
  """A paragraph for each version."""
  return '\n\n'.join(map(tables.provenance, filter(None, _by_version(rows))))


def _by_version(rows):
  """The rows of this environment, and those of the other one."""
  other = {name: row for name, row in rows.items() if name.endswith(OTHER)}
  return {name: rows[name] for name in rows if name not in other}, other


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A line for each work; above 1 x, the other version takes longer."""
  here, other = _by_version(rows)
  if not here or not other:
    return
  ours, theirs = (f'jax {_jax(some)}' for some in (here, other))
  head = ['work', ours, theirs, 'relative (95 % interval)']
  head += [f'compiling, {name}' for name in (ours, theirs)]
  head += [f'temporaries, {name}' for name in (ours, theirs)]
  pairs = [(n, here[n], other[n + OTHER]) for n in here if n + OTHER in other]
  yield tables.table(' | '.join(head), [_line(*pair) for pair in pairs])
  yield tables.unmeasured(cases(False), rows)


def _jax(rows):
  return next(reversed(rows.values()))['versions']['jax']


def _line(name, here, other):
  both = here, other
  return [
    name,
    *(tables.timed(row) for row in both),
    tables.relative(other, here),
    *(
      tables.seconds(row['compile_seconds'])
      if 'compile_seconds' in row
      else '-'
      for row in both
    ),
    *(tables.mebibytes(row.get('temp_bytes')) for row in both),
  ]
