"""Cells side by side: a table of all measures, curves of losses.

Of two rates of learning the better one counts, for each measure its own.
"""

from benchmarks import tables
from benchmarks.suites import cells as suite

HEAD = (
  'cell',
  'its width',
  'weights',
  'rate',
  'nats, held out',
  'at the other rate',
  'tokens/s',
  'temporaries of a step',
  'latency of a token, least',
  'state of a row',
  'recall, right',
)
WHAT = ('training', 'decoding', 'recall')


def render(found, plots):
  """Markdown of one machine's rows."""
  cells = grouped(found)
  parts = [tables.provenance(found), _setting(found), _spread(cells)]
  parts.append(tables.table(HEAD, [_line(*pair) for pair in cells.items()]))
  curves = {
    cell: [(step, loss) for step, loss in best['curve']]
    for cell, rows in cells.items()
    if (best := _best(rows['training'], _loss)).get('curve')
  }
  if curves:
    labels = 'steps', 'training loss, nats a character'
    parts.append(plots.losses('loss', curves, labels))
  parts += (
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  )
  parts.append(tables.unmeasured('cells', found))
  return '\n\n'.join(part for part in parts if part)


def grouped(found):
  """{cell: {one of WHAT: {rate: row}}} of '<cell>: <what>[, <rate>]'."""
  cells = {}
  for name, row in found.items():
    cell, _, told = name.partition(': ')
    what, _, rate = told.partition(', ')
    if what in WHAT:
      rows = cells.setdefault(cell, {what: {} for what in WHAT})[what]
      if 'error' not in row:
        rows[float(rate or suite.RATES[0])] = row
  return cells


def _best(rows, key):
  """The row of least `key`; {} of none."""
  return min(rows.values(), key=key, default={})


def _loss(row):
  return row['held_out']['loss']


def _setting(found):
  """What each was given, a sentence; or ''."""
  told = []
  for what, words in (
    ('training', '{steps} steps on {data}'),
    ('recall', '{steps} steps of associative recall at distance {distance}'),
  ):
    rows = tables.with_prefix(found, '').items()
    given = [row['parameters'] for name, row in rows if name.endswith(what)]
    told += [words.format(**given[0])] if given else []
  return f'Each cell: {", and ".join(told)}.' if told else ''


def _spread(cells):
  """How far medians of latencies lie from the least, a sentence; or ''."""
  apart = [
    row['median'] / row['min']
    for rows in cells.values()
    for row in rows['decoding'].values()
  ]
  if not apart:
    return ''
  return (
    f'Medians of the latencies are {min(apart):.2g} to {max(apart):.2g} times '
    'the least ones, which are shown.'
  )


def _line(cell, rows):
  training = _best(rows['training'], _loss)
  recall = _best(rows['recall'], lambda row: -row['held_out']['exact'])
  decoding = next(iter(rows['decoding'].values()), {})
  rates = {rate: _loss(row) for rate, row in rows['training'].items()}
  rate = min(rates, key=rates.get, default=None)
  others = [f'{r:g}: {loss:.3f}' for r, loss in rates.items() if r != rate]
  speeds = [row['tokens_per_second'] for row in rows['training'].values()]
  width = training.get('size', 0)
  return [
    cell,
    str(width) if width else '-',
    f'{training["weights"]:,}' if training else '-',
    f'{rate:g}' if rates else '-',
    f'{_loss(training):.3f}' if training else '-',
    ', '.join(others) or '-',
    tables.rate(max(speeds, default=None)),
    tables.mebibytes(training.get('temp_bytes')),
    tables.seconds(decoding['min']) if decoding else '-',
    _kibibytes(decoding.get('state_bytes')),
    f'{100 * recall["held_out"]["exact"]:.1f} %' if recall else '-',
  ]


def _kibibytes(value):
  return '-' if value is None else f'{value / 1024:,.1f} KiB'
