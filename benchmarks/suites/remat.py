"""Schedules of kept states: a training step of the published model by 'scan'.

Rows of 1,024 and 8,192 tokens, four at a time. Beside them is the chunked form,
which needs no schedule.

  python -m benchmarks.run --suite=remat
"""

from benchmarks.harness import case
from benchmarks.harness import plots as plots_lib
from benchmarks.harness import tables

TIMED = True

LENGTHS = (1024, 8192)
ROWS = 4
SCAN = {'recurrence.impl': 'scan'}
BINOMIAL = {'schedule': 'binomial'}
LOGARITHMIC = {'schedule': 'logarithmic'}
SCHEDULES = {  # options of the section remat
  'all kept': {},
  'uniform, every 8': {'every': 8},
  'uniform, every 32': {'every': 32},
  'uniform, sqrt': {'every': 'sqrt'},
  'logarithmic, blocks of 1': LOGARITHMIC | {'every': 1},
  'logarithmic, blocks of 16': LOGARITHMIC | {'every': 16},
  'binomial, 8 kept, blocks of 1': BINOMIAL | {'every': 1, 'kept': 8},
  'binomial, 8 kept, blocks of 16': BINOMIAL | {'every': 16, 'kept': 8},
  'binomial, 16 kept, blocks of 16': BINOMIAL | {'every': 16, 'kept': 16},
}
SAVED = 0.05  # of the temporaries: a smaller share is no reason to change


def cases(quick: bool) -> list[case.Case]:
  """Each schedule at each length."""
  listed = []
  for length in (32,) if quick else LENGTHS:
    size = {'batch': 2 if quick else ROWS, 'length': length}
    for name, options in SCHEDULES.items():
      overrides = SCAN | {f'remat.{key}': x for key, x in options.items()}
      listed.append(_case(f'{name}, {length} steps', overrides, size))
    listed.append(_case(f'chunked, {length} steps', {}, size))
  return listed


def _case(name, overrides, size):
  parameters = {'overrides': overrides, **size}
  return case.Case(
    name,
    'workloads.published_model.train_step',
    parameters,
    5,
    base=f'all kept, {size["length"]} steps',
  )


HEAD = (
  'schedule | states kept | steps computed again | XLA temporaries | '
  'per step | relative to all kept | compile | vs. uniform, sqrt'
)


def report(rows: tables.Rows, plots: plots_lib.Plots) -> tables.Report:
  """A table for each length: what schedules hold and cost."""
  by_length = {}
  for name, row in rows.items():
    schedule, _, steps = name.removesuffix(' steps').rpartition(', ')
    if name.endswith(' steps'):
      by_length.setdefault(int(steps), {})[schedule] = row
  for length, some in sorted(by_length.items()):
    floor = tables.floor(some)
    lines = [_line(name, some, length, floor) for name in some]
    yield f'**{length:,} steps**'
    yield tables.table(HEAD, lines)


def _line(name, rows, length, floor):
  row = rows[name]
  kept, again = _counts(row['parameters']['overrides'], length)
  if 'median' not in row:
    return [name, kept, again, tables.short(row), '-', '-', '-', '-']
  return [
    name,
    kept,
    again,
    tables.mebibytes(row['temp_bytes']),
    tables.timed(row),
    tables.relative(row, rows.get('all kept')),
    tables.seconds(row['compile_seconds']),
    verdict(name, rows, floor),
  ]


def _counts(overrides, length):
  """How many states are kept at a time, and steps computed again; as text."""
  from rnn_jax import config as config_lib
  from rnn_jax.ops import remat_schedules

  if 'recurrence.impl' not in overrides:
    return 'one per chunk', '-'
  every = config_lib.remat_length(overrides.get('remat.every', 0), length)
  if not every:
    return f'{length:,}', '0'
  schedule = remat_schedules.make(
    overrides.get('remat.schedule', 'uniform'),
    length // every,
    overrides.get('remat.kept', 0),
  )
  again = schedule.recomputed * every
  return f'{schedule.kept:,}', f'{again:,} ({again / length:.2f} passes)'


def verdict(name: str, rows: tables.Rows, floor: float) -> str:
  """Memory and time relative to sqrt; which uniform one it does not beat.

  Args:
    name: a schedule.
    rows: by schedule, of one length.
    floor: of the noise, a share of a time.
  """
  row, root = rows[name], rows.get('uniform, sqrt', {})
  if not name.startswith(('logarithmic', 'binomial')) or 'median' not in root:
    return '-'
  memory = tables.times(row['temp_bytes'] / root['temp_bytes'])
  text = f'{memory} memory, {tables.times(row["median"] / root["median"])} time'
  uniform = {
    other: its
    for other, its in rows.items()
    if other.startswith('uniform') and 'median' in its
  }
  # The named column first: the others only where it is beaten.
  for other in sorted(uniform, key=lambda other: other != 'uniform, sqrt'):
    if not _better(row, uniform[other], floor):
      return f'{text}: not better than {other}'
  return text


def _better(row, its, floor):
  """Whether a row holds less than `its` by SAVED, or is faster than noise."""
  return (
    row['temp_bytes'] <= (1 - SAVED) * its['temp_bytes']
    or row['median'] * (1 + floor) < its['median']
  )
