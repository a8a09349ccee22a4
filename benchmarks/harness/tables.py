"""Rows chosen and written as Markdown; what the reports share."""

import functools
import re
import statistics
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from benchmarks.harness import case as case_lib
from benchmarks.harness import measure

OUT_OF_MEMORY = r'RESOURCE_EXHAUSTED: Out of memory allocating (\d+) bytes'

ENDS = 'ratio_low', 'ratio_high'
NOISY = 0.05  # a floor of the noise that is too high
NEAR = 0.25  # a claim is confirmed within this share of it

Row = measure.Values
Rows = dict[str, Row]  # by case
Report = Iterator[str]  # paragraphs of Markdown


def newest(rows: Iterable[Row], of_one_device: bool = True) -> dict[str, Rows]:
  """The newest row of each case, by platform.

  Of several devices of a platform, the one that was measured last counts,
  unless the figures don't depend on it. A missing peer hides no earlier row;
  rehearsals (--quick) are left out.
  """
  rows = [row for row in rows if not row.get('quick')]
  last = {_platform(row): row['device'] for row in rows}
  chosen = {platform: {} for platform in last}
  for row in rows:
    cases = chosen[_platform(row)]
    if of_one_device and row['device'] != last[_platform(row)]:
      continue
    name = row['case']
    if row.get('failure') != 'missing' or 'error' in cases.get(name, row):
      cases.pop(name, None)
      cases[name] = row
  return chosen


newest_of_any_device = functools.partial(newest, of_one_device=False)


def newest_by_device(rows: Iterable[Row]) -> dict[str, Rows]:
  """The newest row of each case, by device: each has a report of its own."""
  of_devices: dict[str, list[Row]] = {}
  for row in rows:
    of_devices.setdefault(row['device'], []).append(row)
  return {
    device: cases
    for device, own in of_devices.items()
    for cases in newest(own).values()
  }


def _platform(row):
  return row.get('platform', 'cpu')


def table(head: str, lines: Iterable[Sequence[str]]) -> str:
  """A Markdown table; `head` is written as there: 'name | seconds'."""
  rule = ' | '.join('---' for _ in head.split(' | '))
  rows = (head, rule, *map(' | '.join, lines))
  return '\n'.join(f'| {row} |' for row in rows)


def by_row(
  label: str, rows: Rows, columns: Mapping[str, Callable[[Row], str]]
) -> str:
  """A table with a line for each row: its name, then what each column says.

  A row with an error has that in the first column, and '-' in the others. With
  a label such as 'work | form', names are split at the first ': '.
  """
  parts = label.count(' | ')
  lines = (
    [
      *name.split(': ', parts),
      *(
        [short(row), *['-'] * (len(columns) - 1)]
        if 'error' in row
        else [cell(row) for cell in columns.values()]
      ),
    ]
    for name, row in rows.items()
  )
  return table(' | '.join([label, *columns]), lines)


def failures(rows: Rows, shown: str = '') -> Report:
  """A paragraph for each case that failed and isn't shown already.

  What this machine lacks isn't a failure.
  """
  for name, row in rows.items():
    if 'error' in row and row.get('failure') != 'missing':
      if short(row) not in shown:
        yield f'{name}: {short(row)}'


def unmeasured(cases: Iterable[case_lib.Case], rows: Rows) -> str:
  """The cases of a suite that have no row here, a sentence; or ''."""
  platforms = {'', *map(_platform, rows.values())}
  lacking = [
    f'`{case.name}`'
    for case in cases
    if case.platform in platforms and case.name not in rows
  ]
  return f'Not measured yet: {"; ".join(lacking)}.' if lacking else ''


def provenance(rows: Rows) -> str:
  """Where and with what these rows were measured, and how much they vary."""
  values = list(rows.values())
  last = values[-1]
  versions = {name: v for row in values for name, v in row['versions'].items()}
  devices = dict.fromkeys(row['device'] for row in values)
  commits = dict.fromkeys(row['commit'] for row in values)
  cores = last['cores']
  text = (
    f'{" and ".join(devices)}, {cores} core{"s" * (cores != 1)}, '
    f'Python {last["python"]}, '
    + ', '.join(f'{name} {versions[name]}' for name in sorted(versions))
    + f'; commit {", ".join(commits)}; {last["time"][:10]}.'
  )
  if share := floor(rows):
    text += (
      f' Noise floor: {100 * share:.1f} %, how far the same training step '
      'varied meanwhile.'
    )
  if noisy := sum(map(is_noisy, rows.values())):
    text += (
      f' {noisy} of {len(rows)} rows, marked \\*, are too noisy to be quoted: '
      f'their floor is above {100 * NOISY:.0f} %.'
    )
  return text


def floor(rows: Rows) -> float:
  """The median of the rows' noise floors, see ratios.py; 0 without any."""
  floors = [row['floor'] for row in rows.values() if 'floor' in row]
  return statistics.median(floors) if floors else 0.0


def is_noisy(row: Row) -> bool:
  """Whether other work disturbed a measurement too much to quote it."""
  return row.get('floor', 0.0) > NOISY


def relative(row: Row | None, base: Row | None) -> str:
  """A row's time by its base's, with its interval where both took turns.

  Rows of several `sequences` are compared by the time of one.
  """
  return _ratio(row, base, lambda ratio: ratio)


def speed(row: Row | None, base: Row | None) -> str:
  """How many times as fast as its base a row is, as `relative`."""
  return _ratio(row, base, lambda ratio: 1 / ratio)


def _ratio(row, base, scale):
  quotient = ratio(row, base)
  if quotient is None:
    return '-'
  if row.get('base') != base['case']:
    return times(scale(quotient))
  ends = (quotient * row[end] / row['ratio'] for end in ENDS)
  low, high = map(digits, sorted(map(scale, ends)))
  return f'{times(scale(quotient))} ({low} to {high})'


def ratio(row: Row | None, other: Row | None) -> float | None:
  """A row's time by another's; None if one has none.

  It is that of rounds where both were compared with one base, or one with the
  other; and else of medians.
  """
  if not row or not other or 'median' not in row or 'median' not in other:
    return None
  quotient = row['median'] / other['median']
  if row.get('base') == other['case']:
    quotient = row['ratio']
  elif row.get('base') and row['base'] == other.get('base'):
    quotient = row['ratio'] / other['ratio']
  elif other.get('base') == row['case']:
    quotient = 1 / other['ratio']
  return quotient * other.get('sequences', 1) / row.get('sequences', 1)


def verdict(claimed: float, measured: float) -> str:
  """'confirmed' or 'corrected', with the ratio that was measured."""
  near = abs(measured / claimed - 1) <= NEAR
  word = 'confirmed' if near else 'corrected'
  return f'**{word}**, {measured:.3g} times here.'


def good(rows: Rows, name: str) -> Row | None:
  """The row of that case if it was measured, else None."""
  row = rows.get(name)
  return row if row and 'median' in row else None


def with_prefix(rows: Rows, prefix: str) -> Rows:
  """{rest of the name: row} of cases whose names begin so."""
  size = len(prefix)
  return {
    name[size:]: row for name, row in rows.items() if name.startswith(prefix)
  }


def timed(row: Row | None, scale: float = 1.0) -> str:
  """Median ± deviation of a row, or what went wrong with it.

  Ratios are of medians as well: one slow repeat shows only in the deviation.
  """
  if row is None:
    return '-'
  if 'error' in row:
    return short(row)
  values = (scale * row[key] for key in ('median', 'deviation'))
  return ' ± '.join(map(seconds, values)) + ' \\*' * is_noisy(row)


def short(row: Row) -> str:
  """The error of a row in a few words that fit in a cell."""
  if asked := re.search(OUT_OF_MEMORY, row['error']):
    return f'out of memory at {int(asked[1]) / 2**30:,.1f} GiB'
  text = re.sub(r'\s+', ' ', row['error']).replace('|', '/')
  return text if len(text) <= 80 else text[:77] + '...'


def seconds(value: float) -> str:
  """Seconds with three digits, in a unit that fits."""
  for unit, size in (('s', 1.0), ('ms', 1e-3), ('µs', 1e-6)):
    if value >= size or unit == 'µs':
      return f'{digits(value / size)} {unit}'
  raise AssertionError(value)


def mebibytes(value: float | None) -> str:
  """Bytes in MiB, or '-'."""
  return '-' if value is None else f'{digits(value / 2**20)} MiB'


def peak_memory(row: Row) -> str:
  """What a GPU's allocator counted, else the growth of resident memory."""
  return mebibytes(
    row.get('device_peak_bytes', row.get('resident_delta_bytes'))
  )


def rate(value: float | None) -> str:
  """Tokens per second, or '-'."""
  return '-' if value is None else f'{value:,.0f}'


def times(ratio: float) -> str:
  """A ratio with three digits."""
  return f'{digits(ratio)} x'


def digits(value: float) -> str:
  """Three significant digits, written out."""
  if value >= 100:
    return f'{value:,.0f}'
  return f'{value:.2f}' if value < 10 else f'{value:.1f}'
