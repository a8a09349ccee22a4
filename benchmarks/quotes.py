"""Numbers within sentences of README and docs, filled from rows.

  It takes
  <!-- quote: native :: training step: native :: ratio :: .2f -->.89<!-- end -->
  times as long.

A quote names a suite, a case, a key of its newest row ('held_out.loss' and
'curve.3.1', counted from 0, for nested ones) and how the number is written: a
format of Python, 'percent', 'minutes', 'seconds' (in ms or µs if they are few),
'MiB', or 'interval', the two ends of a ratio's interval. It may also name a
report of docs/experiments, a variant and a metric: mean ± deviation over seeds.
"""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness import case as case_lib
from benchmarks.harness import rows as rows_lib
from benchmarks.harness import tables
from rnn_jax import errors

MARK = re.compile(r'(<!-- quote: ([^>]*?) -->)(.*?)(<!-- end -->)', re.DOTALL)
REPORTS = 'experiments/'
SEPARATOR = ' :: '  # a bar would end the cell of a table


class Quote(NamedTuple):
  """What a mark names."""

  source: str
  name: str
  key: str
  style: str

  def __str__(self) -> str:
    return SEPARATOR.join(self)


class Source(NamedTuple):
  """Where numbers come from."""

  docs: pathlib.Path
  rows: pathlib.Path


def fill(text: str, source: Source) -> str:
  """Returns a page with its quotes filled.

  Raises:
    InputError: a mark names nothing that was measured.
  """
  return MARK.sub(
    lambda match: f'{match[1]}{read(parse(match[2]), source)}{match[4]}', text
  )


def all_of(text: str) -> Iterator[Quote]:
  """Yields the quotes of a page."""
  for match in MARK.finditer(text):
    yield parse(match[2])


def parse(mark: str) -> Quote:
  """Returns the quote that a mark holds.

  Raises:
    InputError: it hasn't four parts.
  """
  parts = [part.strip() for part in ' '.join(mark.split()).split(SEPARATOR)]
  if len(parts) != len(Quote._fields):
    errors.refuse(
      '<!-- quote: ... -->', mark, 'write SUITE :: CASE :: KEY :: FORM'
    )
  return Quote(*parts)


def read(quote: Quote, source: Source) -> str:
  """Returns the text of a quote.

  Raises:
    InputError: there is no such row or key, or the format is wrong.
  """
  if quote.source.startswith(REPORTS):
    figure = _figure(quote, source.docs)
    both = figure['mean'], figure['deviation']
    return ' ± '.join(_written(number, quote) for number in both)
  row = row_of(quote, source.rows)
  if quote.style == 'interval':
    ends = (_number(row, quote._replace(key=end)) for end in tables.ENDS)
    return ' to '.join(_short(f'{end:.2f}') for end in ends)
  return _written(_number(row, quote), quote)


def row_of(quote: Quote, folder: pathlib.Path) -> tables.Row:
  """Returns the newest row that a quote names, of the first device with one.

  Raises:
    InputError: there is none, or it holds an error.
  """
  suite = case_lib.load(quote.source, '<!-- quote: SUITE -->, SUITE')
  select = getattr(suite, 'select', tables.newest)
  by_device = (
    [row for name, row in some.items() if quote.name in (name, row.get('name'))]
    for some in select(rows_lib.read(quote.source, folder)).values()
  )
  chosen = next(filter(None, by_device), [])
  if not chosen or 'error' in chosen[-1]:
    errors.refuse(
      '<!-- quote: ... -->', str(quote), f'measure it: --suite={quote.source}'
    )
  return chosen[-1]


def problems(text: str, source: Source) -> Iterator[str]:
  """Yields what is wrong with the quotes of a page, a line each."""
  for quote in all_of(text):
    if quote.source.startswith(REPORTS):
      continue
    row = row_of(quote, source.rows)
    if tables.is_noisy(row):
      yield f'{quote}: its noise floor is {100 * row["floor"]:.0f} %'
    if 'case' in row and not _is_current(quote, row):
      yield f'{quote}: the case has other parameters today; measure it again'


def _is_current(quote, row):
  cases = case_lib.load(quote.source).cases(False)
  name = row['case'].partition('; jax ')[0]
  identity = row | {'case': name}
  return any(case.identity().items() <= identity.items() for case in cases)


def _figure(quote, docs):
  path = docs / quote.source / 'report.json'
  try:
    variants = json.loads(path.read_text())['variants']
    figure = variants[quote.name]['figures'][quote.key]
  except (OSError, KeyError) as error:
    raise errors.InputError(
      f'<!-- quote: {quote} -->: {path} has no such figure: {error}'
    ) from error
  if figure['mean'] is None:
    raise errors.InputError(
      f'<!-- quote: {quote} -->: {path} has no run of that variant: make one'
    )
  return figure


def _number(row, quote):
  value = row
  for part in quote.key.split('.'):
    value = _part(value, part)
  if not isinstance(value, int | float):
    errors.refuse(
      '<!-- quote: ... -->', str(quote), f'choose a number of {[*row]}'
    )
  return value


def _part(value, part):
  if isinstance(value, list):
    value = {str(place): each for place, each in enumerate(value)}
  return value.get(part) if isinstance(value, dict) else None


def _written(number, quote):
  if quote.style == 'percent':
    return f'{100 * number:.1f} %'
  if quote.style == 'minutes':
    return f'{number / 60:.1f} min'
  if quote.style == 'seconds':
    return tables.seconds(number)
  if quote.style == 'MiB':
    return f'{number / 2**20:,.0f} MiB'
  try:
    return _short(format(number, quote.style))
  except ValueError as error:
    raise errors.InputError(f'<!-- quote: {quote} -->: {error}') from error


def _short(text):
  """'.89' of '0.89', as the pages write it."""
  return re.sub(r'^(-?)0\.', r'\1.', text)
