"""The split of each example, and the overlap of splits."""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax.data.tables import values as values_lib
from rnn_jax.data.text import documents


def content_hash(example: values_lib.Row, label: str) -> bytes:
  """Returns a hash of an example without its label."""
  total = hashlib.sha256()
  for name in sorted(example.values):
    if name != label:
      value = example.values[name]
      total.update(f'{name}\0{_text(value)}\0'.encode(errors='replace'))
  return total.digest()[:16]


def _text(value):
  if isinstance(value, values_lib.Image):
    return hashlib.sha256(value.content).hexdigest()
  if isinstance(value, list):
    return '\1'.join(map(_text, value))
  return str(value)


def percentages(text: str) -> tuple[float, ...]:
  """Parses '85,10,5', the percentages of train, validation and test.

  Raises:
    InputError: these aren't three numbers >= 0 that add up to 100.
  """
  try:
    numbers = tuple(float(part) for part in text.split(','))
  except ValueError:
    numbers = ()
  if len(numbers) != 3 or min(numbers) < 0 or abs(sum(numbers) - 100) > 1e-6:
    raise errors.InputError(
      f'--splits={text!r}: give three percentages that add up to 100, as in '
      '85,10,5'
    )
  return numbers


def assign(
  contents: Sequence[bytes], percentages: Sequence[float], seed: int
) -> list[str]:
  """Returns a split for each example; copies of one get the same.

  Args:
    contents: the `content_hash` of each example.
    percentages: of train, validation and test.
    seed: of the shuffle.

  Raises:
    InputError: a split with a percentage above 0 would get no example.
  """
  groups = collections.Counter(contents)
  order = list(groups)
  wanted = [
    name for name, n in zip(documents.SPLITS, percentages, strict=True) if n
  ]
  if len(order) < len(wanted):
    raise errors.InputError(
      f'--splits: {len(order)} different example(s) cannot fill {wanted}'
    )
  np.random.default_rng(seed).shuffle(order)
  edges = np.cumsum(percentages) / 100 * len(contents)
  chosen: dict[bytes, str] = {}
  count = 0
  for content in order:
    index = int(np.searchsorted(edges[:2], count, side='right'))
    chosen[content] = documents.SPLITS[index]
    count += groups[content]
  if missing := [name for name in wanted if name not in chosen.values()]:
    raise errors.InputError(
      f'--splits: nothing is left for {missing[0]}: its part of '
      f'{len(contents)} example(s), {len(order)} of them different, is less '
      'than one: give it a larger percentage, or 0'
    )
  return [chosen[content] for content in contents]


@dataclasses.dataclass(frozen=True)
class Overlap:
  """Examples that occur in two splits, or twice in one.

  Attributes:
    first: a split.
    second: the other split, or the same.
    contents: the number of different examples.
    example: two locations of one of them.
  """

  first: str
  second: str
  contents: int
  example: tuple[str, str]


def overlaps(
  contents: Sequence[bytes], where: Sequence[str], splits: Sequence[str]
) -> list[Overlap]:
  """Returns the overlap of each pair of splits that has one.

  Args:
    contents: the `content_hash` of each example.
    where: the location of each example.
    splits: the split of each example.
  """
  copies = collections.defaultdict(list)
  for content, location, split in zip(contents, where, splits, strict=True):
    copies[content].append((split, location))
  pairs: dict[tuple[str, str], tuple[int, tuple[str, str]]] = {}
  for locations in copies.values():
    by_split = collections.defaultdict(list)
    for split, location in locations:
      by_split[split].append(location)
    for first, second, example in _pairs(by_split):
      count, shown = pairs.get((first, second), (0, example))
      pairs[first, second] = count + 1, shown
  order = itertools.combinations_with_replacement(documents.SPLITS, 2)
  return [Overlap(*pair, *pairs[pair]) for pair in order if pair in pairs]


def _pairs(by_split):
  names = sorted(by_split, key=documents.SPLITS.index)
  for n, first in enumerate(names):
    if len(by_split[first]) > 1:
      yield first, first, tuple(by_split[first][:2])
    for second in names[n + 1 :]:
      yield first, second, (by_split[first][0], by_split[second][0])
