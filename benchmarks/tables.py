"""Rows chosen and written as Markdown; what the reports share."""

import re

from benchmarks import cases as cases_lib

OUT_OF_MEMORY = r'RESOURCE_EXHAUSTED: Out of memory allocating (\d+) bytes'


def machines(rows):
  """The newest row of each case, {platform: {case: row}}.

  Of several devices of a platform, the one that was measured last counts. A
  missing peer hides no earlier row; rehearsals (--quick) are left out.
  """
  rows = [row for row in rows if not row.get('quick')]
  last = {_platform(row): row['device'] for row in rows}
  found = {platform: {} for platform in last}
  for row in rows:
    cases = found[_platform(row)]
    if row['device'] != last[_platform(row)]:
      continue
    name = row['case']
    if row.get('failure') != 'missing' or 'error' in cases.get(name, row):
      cases.pop(name, None)
      cases[name] = row
  return found


def _platform(row):
  return row.get('platform', 'cpu')


def table(head, lines):
  """A Markdown table of strings."""
  rule = [' --- '] * len(head)
  rows = [f'| {" | ".join(cells)} |' for cells in (head, *lines)]
  return '\n'.join([rows[0], f'|{"|".join(rule)}|', *rows[1:]])


def provenance(found):
  """Where and with what these rows were measured, and how much they vary."""
  rows = list(found.values())
  newest = rows[-1]
  versions = {name: v for row in rows for name, v in row['versions'].items()}
  commits = list(dict.fromkeys(row['commit'] for row in rows))
  told = (
    f'{newest["device"]}, {newest["cores"]} cores, Python {newest["python"]}, '
    + ', '.join(f'{name} {versions[name]}' for name in sorted(versions))
    + f'; commit {", ".join(commits)}; {newest["time"][:10]}.'
  )
  return told + noise(found)


def noise(found):
  """How far the reference's two timings lie apart, a sentence; or ''."""
  if not (pair := _references(found)):
    return ''
  first, last = pair
  return (
    f' Noise floor: the same training step took {seconds(first)} before all '
    f'others and {seconds(last)} after them, {100 * floor(found):.1f} % apart.'
  )


def floor(found):
  """The same as a share of the shorter one; 0 where there is no reference."""
  pair = _references(found)
  return max(pair) / min(pair) - 1 if pair else 0.0


def _references(found):
  rows = [good(found, f'reference, {when}') for when in ('first', 'last')]
  return [row['median'] for row in rows] if all(rows) else []


def unmeasured(suite, found):
  """The cases of a suite that have no row here, a sentence; or ''."""
  platforms = {'', *map(_platform, found.values())}
  lacking = [
    f'`{case.name}`'
    for case in cases_lib.load(suite).cases(False)
    if case.platform in platforms
    and case.name not in found
    and not case.name.startswith('reference, ')
  ]
  return f'Not measured yet: {"; ".join(lacking)}.' if lacking else ''


def timed(row, scale=1.0):
  """Median ± deviation of a row, or what went wrong with it.

  Ratios are of medians as well: what one slow repeat does shows in the
  deviation alone.
  """
  if row is None:
    return '-'
  if 'error' in row:
    return short(row)
  return (
    f'{seconds(scale * row["median"])} ± {seconds(scale * row["deviation"])}'
  )


def short(row):
  """The error of a row in a few words that fit in a cell."""
  if asked := re.search(OUT_OF_MEMORY, row['error']):
    return f'out of memory at {int(asked[1]) / 2**30:,.1f} GiB'
  text = re.sub(r'\s+', ' ', row['error']).replace('|', '/')
  return text if len(text) <= 80 else text[:77] + '...'


def seconds(value):
  """Seconds with three digits, in a unit that fits."""
  for unit, size in (('s', 1.0), ('ms', 1e-3), ('µs', 1e-6)):
    if value >= size or unit == 'µs':
      return f'{digits(value / size)} {unit}'
  raise AssertionError(value)


def mebibytes(value):
  """Bytes in MiB, or '-'."""
  return '-' if value is None else f'{digits(value / 2**20)} MiB'


def rate(value):
  """Tokens a second, or '-'."""
  return '-' if value is None else f'{value:,.0f}'


def times(ratio):
  """A ratio with three digits."""
  return f'{digits(ratio)} x'


def digits(value):
  """Three significant digits, written out."""
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.2f}' if value < 10 else f'{value:.1f}'


def good(found, name):
  """The row of that case if it was measured, else None."""
  row = found.get(name)
  return row if row and 'median' in row else None


def with_prefix(found, prefix):
  """{rest of the name: row} of cases whose names begin so."""
  size = len(prefix)
  return {
    name[size:]: row for name, row in found.items() if name.startswith(prefix)
  }
