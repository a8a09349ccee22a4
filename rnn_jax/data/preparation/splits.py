"""Which example goes into which split, and what two splits share."""

import collections
import dataclasses
import hashlib
import itertools

import numpy as np

from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs


def content_hash(example: examples.Example, label: str) -> bytes:
  """Returns what two examples share that differ in their label alone."""
  total = hashlib.sha256()
  for name in sorted(example.values):
    if name != label:
      value = example.values[name]
      total.update(f'{name}\0{_text(value)}\0'.encode(errors='replace'))
  return total.digest()[:16]


def _text(value):
  if isinstance(value, examples.Image):
    return hashlib.sha256(value.content).hexdigest()
  if isinstance(value, list):
    return '\1'.join(map(_text, value))
  return str(value)


def shares(text: str) -> tuple[float, ...]:
  """Reads '85,10,5', per cent of train, validation and test.

  Raises:
    InputError: these are not three numbers from 0 up that add up to 100.
  """
  try:
    found = tuple(float(part) for part in text.split(','))
  except ValueError:
    found = ()
  if len(found) != 3 or min(found) < 0 or abs(sum(found) - 100) > 1e-6:
    raise errors.InputError(
      f'--splits={text!r}: give three shares that add up to 100, as in 85,10,5'
    )
  return found


def assign(contents: list[bytes], percent, seed: int) -> list[str]:
  """Returns a split for each example, copies of one all in the same.

  Raises:
    InputError: a split with a share above 0 would get no example.
  """
  groups = collections.Counter(contents)
  order = list(groups)
  wanted = [name for name, n in zip(inputs.SPLITS, percent, strict=True) if n]
  if len(order) < len(wanted):
    raise errors.InputError(
      f'--splits: {len(order)} different example(s) cannot fill {wanted}'
    )
  np.random.default_rng(seed).shuffle(order)
  edges = np.cumsum(percent) / 100 * len(contents)
  chosen, count = {}, 0
  for content in order:
    at = int(np.searchsorted(edges[:2], count, side='right'))
    chosen[content] = inputs.SPLITS[at]
    count += groups[content]
  if missing := [name for name in wanted if name not in chosen.values()]:
    raise errors.InputError(
      f'--splits: nothing is left for {missing[0]}: its share of '
      f'{len(contents)} example(s), {len(order)} of them different, is less '
      'than one: give it a larger share, or 0'
    )
  return [chosen[content] for content in contents]


@dataclasses.dataclass(frozen=True)
class Overlap:
  """Contents that occur in two splits, or twice in one."""

  first: str
  second: str
  contents: int
  example: tuple[str, str]  # where one of them was found


def overlaps(contents, where, split_of_each) -> list[Overlap]:
  """Returns what occurs more than once, for each pair of splits."""
  places = collections.defaultdict(list)
  for content, place, split in zip(contents, where, split_of_each, strict=True):
    places[content].append((split, place))
  found = {}
  for copies in places.values():
    by_split = collections.defaultdict(list)
    for split, place in copies:
      by_split[split].append(place)
    for first, second, example in _pairs(by_split):
      count, shown = found.get((first, second), (0, example))
      found[first, second] = count + 1, shown
  pairs = itertools.combinations_with_replacement(inputs.SPLITS, 2)
  return [Overlap(*pair, *found[pair]) for pair in pairs if pair in found]


def _pairs(by_split):
  names = sorted(by_split, key=inputs.SPLITS.index)
  for n, first in enumerate(names):
    if len(by_split[first]) > 1:
      yield first, first, tuple(by_split[first][:2])
    for second in names[n + 1 :]:
      yield first, second, (by_split[first][0], by_split[second][0])
