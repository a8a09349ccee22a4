"""Cells side by side: a table of all measures, curves of losses."""

from benchmarks import tables

HEAD = (
  'cell',
  'its width',
  'weights',
  'nats, held out',
  'tokens/s',
  'temporaries of a step',
  'latency of a token',
  'state of a row',
  'recall, right',
)
WHAT = ('training', 'decoding', 'recall')


def render(found, plots):
  """Markdown of one machine's rows."""
  cells = dict.fromkeys(
    name.partition(': ')[0] for name in found if name.partition(': ')[2] in WHAT
  )
  parts = [tables.provenance(found)]
  if setting := _setting(found):
    parts.append(setting)
  parts.append(tables.table(HEAD, [_line(cell, found) for cell in cells]))
  curves = {
    cell: [(step, loss) for step, loss in row['curve']]
    for cell in cells
    if (row := found.get(f'{cell}: training', {})).get('curve')
  }
  if curves:
    labels = 'steps', 'training loss, nats a character'
    parts.append(plots.lines('loss', curves, labels, 'linear'))
  failed = (
    f'{name}: {tables.short(row)}'
    for name, row in found.items()
    if 'error' in row
  )
  return '\n\n'.join([*parts, *failed])


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


def _line(cell, found):
  training, decoding, recall = (
    row if 'error' not in (row := found.get(f'{cell}: {what}', {})) else {}
    for what in WHAT
  )
  width = training.get('size', 0)
  return [
    cell,
    str(width) if width else '-',
    f'{training["weights"]:,}' if training else '-',
    f'{training["held_out"]["loss"]:.3f}' if training else '-',
    tables.rate(training.get('tokens_per_second')),
    tables.mebibytes(training.get('temp_bytes')),
    tables.seconds(decoding['p50']) if decoding else '-',
    _kibibytes(decoding.get('state_bytes')),
    f'{100 * recall["held_out"]["exact"]:.1f} %' if recall else '-',
  ]


def _kibibytes(value):
  return '-' if value is None else f'{value / 1024:,.1f} KiB'
