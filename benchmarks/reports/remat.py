"""What schedules of kept states hold and cost, and which are not worth it."""

from benchmarks import tables
from rnn_jax import config as config_lib
from rnn_jax.ops import remat_schedules

HEADS = (
  'schedule',
  'states kept',
  'steps computed again',
  'XLA temporaries',
  'a step',
  'relative to all kept',
  'compile',
  'beside uniform, sqrt',
)
SAVED = 0.05  # of the temporaries: a smaller share is no reason to change


def render(found, plots):
  """Markdown of one machine's rows: a table for each length."""
  del plots
  parts = [tables.provenance(found)]
  lengths = sorted({_length(row) for name, row in _cases(found)})
  for length in lengths:
    rows = {
      name.rpartition(', ')[0]: row
      for name, row in _cases(found)
      if _length(row) == length
    }
    lines = [_line(name, rows, tables.floor(found)) for name in rows]
    parts += [f'**{length:,} steps**', tables.table(HEADS, lines)]
  return '\n\n'.join(parts)


def _cases(found):
  return [pair for pair in found.items() if pair[0].endswith(' steps')]


def _length(row):
  return row['parameters']['length']


def _line(name, rows, floor):
  row = rows[name]
  kept, again = _counts(row)
  if 'median' not in row:
    return [name, kept, again, tables.short(row), '-', '-', '-', '-']
  whole = rows.get('all kept', {}).get('median')
  return [
    name,
    kept,
    again,
    tables.mebibytes(row['temp_bytes']),
    tables.timed(row),
    tables.times(row['median'] / whole) if whole else '-',
    tables.seconds(row['compile_seconds']),
    _verdict(name, rows, floor),
  ]


def _counts(row):
  """How many states are kept at a time, and steps computed again; as text."""
  remat = {
    key.removeprefix('remat.'): value
    for key, value in row['parameters']['overrides'].items()
    if key.startswith('remat.')
  }
  if 'recurrence.impl' not in row['parameters']['overrides']:
    return 'one a chunk', '-'
  length = _length(row)
  every = config_lib.remat_length(remat.get('every', 0), length)
  if not every:
    return f'{length:,}', '0'
  schedule = remat_schedules.make(
    remat.get('schedule', 'uniform'), length // every, remat.get('kept', 0)
  )
  again = schedule.recomputed * every
  return f'{schedule.kept:,}', f'{again:,} ({again / length:.2f} passes)'


def _verdict(name, rows, floor):
  """Memory and time relative to sqrt; which uniform one it does not beat."""
  row, root = rows[name], rows.get('uniform, sqrt', {})
  if not name.startswith(('logarithmic', 'binomial')) or 'median' not in root:
    return '-'
  memory = tables.times(row['temp_bytes'] / root['temp_bytes'])
  told = f'{memory} memory, {tables.times(row["median"] / root["median"])} time'
  uniform = {
    other: its
    for other, its in rows.items()
    if other.startswith('uniform') and 'median' in its
  }
  # The named column first: the others only where it is beaten.
  for other in sorted(uniform, key=lambda other: other != 'uniform, sqrt'):
    if not better(row, uniform[other], floor):
      return f'{told}: not better than {other}'
  return told


def better(row, its, floor):
  """Whether a row holds less than `its` by SAVED, or is faster than noise."""
  return (
    row['temp_bytes'] <= (1 - SAVED) * its['temp_bytes']
    or row['median'] * (1 + floor) < its['median']
  )
