"""Time and memory against one size, with fitted exponents."""

import numpy as np

from benchmarks import tables

FITTED = 4  # largest sizes that an exponent is fitted to
PAIR = (8192, 65536)  # lengths of the growth that is stated
NEAR = 0.15  # a claimed exponent is confirmed within this
# What the publication says of complexity in the length, without measuring it.
CLAIMS = (
  ("SimpleRNN's time is linear", 'ours', 'median', 1),
  ("SimpleRNN's memory is linear", 'ours', 'temp_bytes', 1),
  ("Self-attention's time is quadratic", 'attention, full', 'median', 2),
  ("Self-attention's memory is quadratic", 'attention, full', 'temp_bytes', 2),
)


def render(found, plots):
  """Markdown of one machine's rows."""
  parts = [tables.provenance(found)]
  for kind in ('length', 'batch', 'width', 'layers'):
    curves = curves_of(found, kind)
    if curves:
      parts += [f'**{kind.capitalize()}**', table(curves, kind)]
      parts += [_exponents(curves), *pictures(curves, kind, plots)]
    if curves and kind == 'length':
      parts += [*_growth(curves), *_crossing(curves), *claims(curves)]
  return '\n\n'.join(parts)


def curves_of(found, kind):
  """{subject: {size: row}} of the cases named '<kind> <size>: <subject>'."""
  curves = {}
  for name, row in found.items():
    what, _, subject = name.partition(': ')
    if what.startswith(kind + ' '):
      size = int(what.removeprefix(kind + ' '))
      curves.setdefault(subject, {})[size] = row
  return curves


def table(curves, kind):
  """Markdown: a line for each size, a column for each subject."""
  sizes = sorted({size for curve in curves.values() for size in curve})
  lines = [
    [f'{size:,}', *(_cell(curve.get(size)) for curve in curves.values())]
    for size in sizes
  ]
  return tables.table([kind, *curves], lines)


def _cell(row):
  if row is None or 'error' in row:
    return tables.timed(row)
  memory = row.get('temp_bytes')
  told = '' if memory is None else f', {tables.mebibytes(memory)}'
  return tables.seconds(row['median']) + told


def points(curve, key):
  """[(size, value)] of the rows that have one, by size."""
  return [
    (size, row[key]) for size, row in sorted(curve.items()) if row.get(key)
  ]


def exponent(pairs):
  """The slope of log y over log x at the largest sizes; None if too few."""
  if len(pairs) < 2:
    return None
  x, y = np.log(np.array(pairs[-FITTED:], float)).T
  return float(np.polyfit(x, y, 1)[0])


def _exponents(curves):
  lines = []
  for subject, curve in curves.items():
    fits = [exponent(points(curve, k)) for k in ('median', 'temp_bytes')]
    cells = ['-' if fit is None else f'{fit:.2f}' for fit in fits]
    lines.append([subject, *cells])
  told = f'Exponents fitted to the {FITTED} largest sizes of each:'
  return f'{told}\n\n' + tables.table(['subject', 'time', 'memory'], lines)


def pictures(curves, kind, plots, timed='a training step'):
  """Markdown of time and temporaries against the size, drawn."""
  for key, label in (
    ('median', f'seconds {timed}'),
    ('temp_bytes', 'XLA temporaries, bytes'),
  ):
    series = {name: points(curve, key) for name, curve in curves.items()}
    series = {name: pairs for name, pairs in series.items() if pairs}
    if series:
      yield plots.lines(f'{kind}_{key}', series, (kind, label))


def _growth(curves):
  for subject, curve in curves.items():
    short, long = (tables.good(curve, length) for length in PAIR)
    if short and long:
      ratio = long['median'] / short['median']
      yield (
        f'From {PAIR[0]:,} to {PAIR[1]:,} tokens the time of {subject} grows '
        f'{ratio:.3g} times, the length {PAIR[1] // PAIR[0]} times.'
      )


def _crossing(curves):
  """From which length on ours is faster than each of the others."""
  ours = dict(points(curves.get('ours', {}), 'median'))
  for subject, curve in curves.items():
    other = dict(points(curve, 'median'))
    both = sorted(ours.keys() & other.keys())
    if subject == 'ours' or not both:
      continue
    slower = [length for length in both if ours[length] >= other[length]]
    faster = [length for length in both if length > max(slower, default=0)]
    yield (
      f'Ours is faster than {subject} from {faster[0]:,} tokens on.'
      if faster
      else f'Ours is not faster than {subject} at {both[-1]:,} tokens.'
    )


def claims(curves):
  """A sentence for each claim on complexity, with what was measured."""
  for told, subject, key, claimed in CLAIMS:
    fit = exponent(points(curves.get(subject, {}), key))
    if fit is None:
      yield f'Claim: {told} in the length: not measured here.'
      continue
    word = 'confirmed' if abs(fit - claimed) <= NEAR else 'corrected'
    yield (
      f'Claim: {told} in the length: **{word}**, it grows with the power '
      f'{fit:.2f} here.'
    )
