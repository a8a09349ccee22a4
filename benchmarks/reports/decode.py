"""Decoding: latency, prefixes, throughput, cold start.

A latency is the least of the repeats, which other work on the machine does
not touch; rates are of medians.
"""

from benchmarks import tables

SINGLE = (
  'one step',
  'whole generation',
  'stepwise from Python',
  'cold start, compiling',
  'cold start, compiled before',
)


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [tables.provenance(found), _single(found), _latency(found)]
  prefixes, batches = _numbers(found, 'loop, prefix '), _batches(found)
  if prefixes:
    parts += [_prefixes(found, prefixes), _prefix_plot(prefixes, plots)]
  if batches:
    parts += [_batch_table(batches), _batch_plot(batches, plots)]
  return '\n\n'.join(part for part in parts if part)


def _single(found):
  rows = [(name, found[name]) for name in SINGLE if name in found]
  lines = [
    (name, _least(row), tables.timed(row), str(row.get('repeats', '-')))
    for name, row in rows
  ]
  head = ('what', 'least', 'median ± deviation', 'repeats')
  return tables.table(head, lines) if lines else ''


def _least(row):
  return tables.seconds(row['min']) if 'min' in row else '-'


def per_token(row):
  """The least seconds a new token."""
  return row['seconds_per_token'] * row['min'] / row['median']


def _latency(found):
  row = tables.good(found, 'one step')
  if not row:
    return ''
  told = ', '.join(
    f'{key} {tables.seconds(row[key])}' for key in ('p50', 'p95', 'p99')
  )
  told = f'least {tables.seconds(row["min"])}, {told}'
  return f'Latency of one step, batch 1, called from Python: {told}.'


def _numbers(found, prefix):
  """{number: row} of the measured cases named '<prefix><number>'."""
  rows = tables.with_prefix(found, prefix)
  return {int(n): row for n, row in rows.items() if 'median' in row}


def _prefixes(found, prefixes):
  read = _numbers(found, 'prefill, ')
  lines = []
  for prefix, row in prefixes.items():
    rate = read.get(prefix, {}).get('tokens_per_second')
    token = tables.seconds(per_token(row))
    lines.append((f'{prefix:,}', token, tables.rate(rate)))
  head = ('prefix', 'time a new token, least', 'prefill, tokens/s')
  return tables.table(head, lines)


def _prefix_plot(prefixes, plots):
  points = [(n, 1e6 * per_token(row)) for n, row in prefixes.items()]
  labels = ('prefix', 'least µs a new token, batch 1')
  return plots.lines('prefix', {'one loop': points}, labels)


def _batches(found):
  """{batch: (tokens/s of decoding, of the forward pass or None)}."""
  forward = _numbers(found, 'forward, batch ')
  key = 'tokens_per_second'
  return {
    n: (row[key], forward.get(n, {}).get(key))
    for n, row in _numbers(found, 'loop, batch ').items()
  }


def _batch_table(batches):
  lines = [
    (
      str(n),
      tables.rate(decoded),
      tables.rate(passed),
      f'{decoded / passed:.3g}' if passed else '-',
    )
    for n, (decoded, passed) in batches.items()
  ]
  head = ('batch', 'decoding, tokens/s', 'forward pass, tokens/s', 'ratio')
  return tables.table(head, lines)


def _batch_plot(batches, plots):
  series = {
    'decoding': [(n, pair[0]) for n, pair in batches.items()],
    'forward pass': [(n, pair[1]) for n, pair in batches.items() if pair[1]],
  }
  return plots.lines('batch', series, ('batch', 'tokens/s'))
