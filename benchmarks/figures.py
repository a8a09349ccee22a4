"""Numbers within sentences of README and docs, each filled from a row.

docs/figures.toml lists, by page, the words around the numbers, each of which is
{} there, and what the numbers are:

  [["README.md"]]
  text = "a training step of the published model takes {} times"
  figures = [["native", "training step: native", "ratio", ".2f"]]

A figure names a suite, a case, a key of its newest row ('held_out.loss' and
'curve.3.1', counted from 0, for nested ones) and how the number is written: a
format of Python, 'percent', 'minutes', 'seconds' (in ms or µs if they are few),
'MiB', or 'interval', the two ends of a ratio's interval. It may also name a
report of docs/experiments, a variant and a metric: mean ± deviation over seeds.
With '3.scores.accuracy' it is a key of the row of seed 3 there.
"""

import functools
import json
import pathlib
import re
import tomllib
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness import case as case_lib
from benchmarks.harness import rows as rows_lib
from benchmarks.harness import tables
from rnn_jax import errors

NAME = 'figures.toml'
REPORTS = 'experiments/'
HOLE = '{}'
NUMBER = r'([-.\d].{0,30}?)'  # what a hole may hold


class Figure(NamedTuple):
  """A number: where it comes from and how it is written."""

  source: str
  name: str
  key: str
  style: str

  def __str__(self) -> str:
    return f'{NAME}: {json.dumps(self, ensure_ascii=False)}'


class Place(NamedTuple):
  """Words of a page around numbers, which are holes in `text`."""

  text: str
  figures: tuple[Figure, ...]


class Source:
  """Where numbers come from: a folder of documents and one of rows."""

  def __init__(self, docs: pathlib.Path, rows: pathlib.Path):
    self.docs = docs
    self._rows = rows

  @functools.cache  # noqa: B019 - lives as long as one command
  def rows(self, suite: str) -> dict[str, tables.Rows]:
    """A suite's selected rows by platform.

    Raises:
      InputError: no such suite.
    """
    module = case_lib.load(suite, 'suite')
    select = getattr(module, 'select', tables.newest)
    return select(rows_lib.read(suite, self._rows))


def load(docs: pathlib.Path) -> dict[str, list[Place]]:
  """Returns the places by page, a path relative to the folder above `docs`.

  Raises:
    InputError: the file is damaged, or an entry isn't as described above.
  """
  path = docs / NAME
  if not path.exists():
    return {}
  try:
    pages = tomllib.loads(path.read_text())
  except tomllib.TOMLDecodeError as error:
    raise errors.InputError(f'{path}: {error}') from error
  for page in pages:
    if not (docs.parent / page).is_file():
      raise errors.InputError(f'{path}: page {page!r}: no such file')
  return {page: [*map(_place, entries)] for page, entries in pages.items()}


def fill(text: str, places: Iterable[Place], source: Source) -> str:
  """Returns a page with the numbers of these places as the rows have them.

  Raises:
    InputError: a place isn't on the page, or its row isn't there.
  """
  for place in places:
    match = _find(text, place.text)
    values = [read(figure, source) for figure in place.figures]
    for n, value in reversed([*enumerate(values, 1)]):
      # A line may end within a number.
      if match[n].split() != value.split():
        text = text[: match.start(n)] + value + text[match.end(n) :]
  return text


def problems(places: Iterable[Place], source: Source) -> Iterator[str]:
  """Yields what is wrong with the rows of some places, a line each."""
  for figure in (figure for place in places for figure in place.figures):
    if figure.source.startswith(REPORTS):
      continue
    row = row_of(figure, source)
    if tables.is_noisy(row):
      yield f'{figure}: its noise floor is {100 * row["floor"]:.0f} %'
    if 'case' in row and not _is_current(figure, row):
      yield f'{figure}: the case has other parameters today; measure it again'


def read(figure: Figure, source: Source) -> str:
  """Returns the text of a figure.

  Raises:
    InputError: there is no such row or key, or the format is wrong.
  """
  if figure.source.startswith(REPORTS):
    both = (x for x in _of_report(figure, source.docs) if x is not None)
    texts = [_written(number, figure) for number in both]
    return ' ± '.join([*(x.removesuffix(' %') for x in texts[:-1]), texts[-1]])
  row = row_of(figure, source)
  if figure.style == 'interval':
    ends = (_number(row, figure._replace(key=end)) for end in tables.ENDS)
    return ' to '.join(_short(f'{end:.2f}') for end in ends)
  return _written(_number(row, figure), figure)


def row_of(figure: Figure, source: Source) -> tables.Row:
  """Returns the newest row that a figure names, of the first device with one.

  Raises:
    InputError: there is none, or it holds an error.
  """
  by_device = (
    [row for n, row in some.items() if figure.name in (n, row.get('name'))]
    for some in source.rows(figure.source).values()
  )
  chosen = next(filter(None, by_device), [])
  if not chosen or 'error' in chosen[-1]:
    raise errors.InputError(
      f'{figure}: no such row: measure it: --suite={figure.source}'
    )
  return chosen[-1]


def _place(entry):
  match entry:
    case {'text': str(text), 'figures': [*figures]} if len(entry) == 2:
      made = tuple(_figure(figure) for figure in figures)
    case _:
      raise errors.InputError(f'{NAME}: {entry}: give text and figures')
  text = ' '.join(text.split())
  if text.count(HOLE) != len(made) or not made:
    raise errors.InputError(
      f'{NAME}: text={text!r} has {text.count(HOLE)} {HOLE} and {len(made)} '
      'figures: give one for each number'
    )
  if text.startswith(HOLE) or text.endswith(HOLE):
    raise errors.InputError(
      f'{NAME}: text={text!r}: begin and end it with words of the page'
    )
  return Place(text, made)


def _figure(parts):
  if len(parts) != 4 or not all(isinstance(part, str) for part in parts):
    raise errors.InputError(
      f'{NAME}: {parts}: give [suite, case, key, form], four strings'
    )
  return Figure(*parts)


def _find(text, wanted):
  """The match of a place on a page, a group for each number."""
  parts = (
    r'\s+'.join(map(re.escape, re.split(r'\s+', part)))
    for part in wanted.split(HOLE)
  )
  # Whole words, or '{}.' would end at the point of a number.
  words = rf'(?<!\S){NUMBER.join(parts)}(?!\S)'
  found = [*re.finditer(words, text, re.DOTALL)]
  if len(found) != 1:
    raise errors.InputError(
      f'{NAME}: text={wanted!r} is {len(found)} times on its page: give words '
      'that are there once'
    )
  return found[0]


def _is_current(figure, row):
  cases = case_lib.load(figure.source).cases(False)
  name = row['case'].partition('; jax ')[0]
  identity = row | {'case': name}
  return any(case.identity().items() <= identity.items() for case in cases)


def _of_report(figure, docs):
  """Returns (mean, deviation), or (a number of the row of a seed, None)."""
  from rnn_jax.experiments import records

  folder = docs / figure.source
  seed, _, key = figure.key.partition('.')
  try:
    if seed.isdecimal():
      row = records.read(folder)[figure.name, int(seed)]
      return _number(row, figure._replace(key=key)), None
    variants = json.loads((folder / 'report.json').read_text())['variants']
    found = variants[figure.name]['figures'][figure.key]
  except (OSError, KeyError) as error:
    raise errors.InputError(
      f'{figure}: {folder} has no such figure: {error}'
    ) from error
  if found['mean'] is None:
    raise errors.InputError(
      f'{figure}: {folder} has no run of that variant: run one'
    )
  return found['mean'], found['deviation']


def _number(row, figure):
  value = row
  for part in figure.key.split('.'):
    value = _part(value, part)
  if not isinstance(value, int | float):
    raise errors.InputError(f'{figure}: choose a number of {[*row]}')
  return value


def _part(value, part):
  if isinstance(value, list):
    value = {str(place): each for place, each in enumerate(value)}
  return value.get(part) if isinstance(value, dict) else None


def _written(number, figure):
  if figure.style == 'percent':
    return f'{100 * number:.1f} %'
  if figure.style == 'minutes':
    return f'{number / 60:.1f} min'
  if figure.style == 'seconds':
    return tables.seconds(number)
  if figure.style == 'MiB':
    return f'{number / 2**20:,.0f} MiB'
  try:
    return _short(format(number, figure.style))
  except ValueError as error:
    raise errors.InputError(f'{figure}: {error}') from error


def _short(text):
  """'.89' of '0.89', as the pages write it."""
  return re.sub(r'^(-?)0\.', r'\1.', text)
