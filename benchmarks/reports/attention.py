"""Attention's time and temporaries by length, and what blocks save."""

from benchmarks import tables
from benchmarks.reports import scaling

LENGTH = 8192  # at which ratios are stated


def render(found, plots):
  """Markdown of one machine's rows; times are medians."""
  curves = scaling.curves_of(found, 'length')
  parts = [tables.provenance(found), scaling.table(curves, 'length')]
  parts += scaling.pictures(curves, 'length', plots, 'forward and backward')
  parts.append('\n'.join(f'* {told}' for told in _ratios(curves)))
  parts += map(_difference, tables.with_prefix(found, 'difference ').items())
  if rows := scaling.curves_of(found, 'row'):
    parts.append('Each step sees all of its row, later steps included:')
    parts.append(scaling.table(rows, 'row'))
  parts.append(tables.unmeasured('attention', found))
  return '\n\n'.join(part for part in parts if part)


def _ratios(curves):
  rows = {name: curve.get(LENGTH, {}) for name, curve in curves.items()}
  bytes_, times = (
    {name: row[key] for name, row in rows.items() if row.get(key)}
    for key in ('temp_bytes', 'median')
  )
  if {'exact', 'blocked'} <= bytes_.keys():
    ratio = bytes_['exact'] / bytes_['blocked']
    yield (
      f'At {LENGTH:,} steps, blocks take 1/{ratio:.3g} of the temporaries of '
      'all scores at once.'
    )
  full = {name: times[name] for name in ('exact', 'blocked') if name in times}
  if not full:
    return
  best = min(full, key=full.get)
  for name, seconds in times.items():
    if name not in full:
      ratio, word = full[best] / seconds, 'fast'
      if ratio < 1:
        ratio, word = 1 / ratio, 'slow'
      yield (
        f'At {LENGTH:,} steps, {name} is {ratio:.3g} times as {word} as the '
        f'faster form of full attention, {best}.'
      )


def _difference(item):
  name, row = item
  if 'differences' not in row:
    return f'Difference at {name}: {tables.short(row)}.'
  length = int(name.partition(':')[0])
  told = ', '.join(f'{key} {x:.1e}' for key, x in row['differences'].items())
  return (
    f'Blocks and all scores at once differ at {length:,} steps by at most this '
    f'share of the largest number of y and of the gradients of q, k, v: {told}.'
  )
