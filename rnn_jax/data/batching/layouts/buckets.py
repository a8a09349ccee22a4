"""Buckets of similar length: a row is padded to the bucket it fits best.

A bucket with enough rows becomes a batch. The rows that are left at the end of
a block move to the next longer bucket, so that only its last batch is padded.
If rows are split by rarity, or by several features, a bucket has a queue for
each level, and a batch has rows of one level; the shapes stay the same.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any
from typing import Self

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import layout as layout_lib
from rnn_jax.data.batching import levels
from rnn_jax.data.batching import shapes as shapes_lib

BUCKETINGS = ('quantile', 'balanced', 'least_padding', 'powers')


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  boundaries: tuple[int, ...] = ()  # bucket lengths; empty: by `bucketing`
  bucketing: str = config_lib.option('quantile', choices=BUCKETINGS)
  # The largest number of buckets; 'powers' has its own.
  buckets: int = config_lib.option(4, minimum=1, maximum=1024)
  # Above 1: also splits each bucket by rarity.
  rarity_buckets: int = config_lib.option(1, minimum=1, maximum=64)
  # Above 1: also splits each bucket by the nearest of so many centroids.
  feature_buckets: int = config_lib.option(1, minimum=1, maximum=64)

  def check(self, config: config_lib.Config) -> None:
    """Checks the bucket lengths and what else splits buckets.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    del config
    if min(self.rarity_buckets, self.feature_buckets) > 1:
      errors.refuse(
        'data.feature_buckets',
        self.feature_buckets,
        f'data.rarity_buckets={self.rarity_buckets} splits buckets too, and '
        'rarity is one of the features: give 1 for one of them',
      )
    given = self.boundaries
    if list(given) != sorted(set(given)):
      errors.refuse('data.boundaries', given, 'give ascending lengths')
    if given and given[0] < 1:
      errors.refuse('data.boundaries', given, 'give lengths above 0')
    if given and given[-1] != self.length:
      errors.refuse(
        'data.boundaries',
        given,
        f'end with data.length={self.length}, the longest row',
      )

  def refitted(self) -> Self:
    """Returns the options without the given lengths, which may not fit."""
    return dataclasses.replace(self, boundaries=())

  def row_lengths(self) -> tuple[int, ...] | None:
    """Returns the boundaries; None: they depend on the text."""
    return self.boundaries or None

  def shortened(self, length: int) -> Self:
    """Returns a copy with rows of another length."""
    kept = self.boundaries
    if kept:
      kept = (*(n for n in kept if n < length), length)
    return dataclasses.replace(self, length=length, boundaries=kept)


@functools.lru_cache(maxsize=4)
def lengths(corpus: Any, data: Config, seed: int) -> tuple[int, ...]:
  """Returns the given bucket lengths, or those derived from a sample.

  Raises:
    InputError: all rows are longer than the first of `data.boundaries`.
  """
  if data.bucketing == 'powers' and not data.boundaries:
    return power_boundaries(data.length)
  rows = shapes_lib.sample_lengths(corpus, data, seed)
  if not data.boundaries:
    choose = {
      'quantile': quantile_boundaries,
      'balanced': balanced_boundaries,
      'least_padding': least_padding_boundaries,
    }[data.bucketing]
    return choose(rows, data.buckets, data.length)
  if data.boundaries[0] < min(rows, default=1):
    _check_first(corpus, data, seed)
  return data.boundaries


def split(corpus: Any, data: Config, seed: int) -> Any:
  """Returns what puts the rows of a bucket on levels, or None."""
  count = max(data.rarity_buckets, data.feature_buckets)
  if count == 1:
    return None
  kind = levels.Rarity if data.feature_buckets == 1 else levels.Features
  return kind(
    shapes_lib.unigram(corpus, data, seed),
    shapes_lib.sample(corpus, data, seed),
    lengths(corpus, data, seed),
    count,
  )


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of buckets; see the package."""
  sizes, shapes, data = block.sizes, block.shapes, block.data
  count = max(data.rarity_buckets, data.feature_buckets)
  bucket = np.searchsorted([length for _, length in shapes], sizes)
  queue = bucket * count + (0 if block.levels is None else block.levels)
  by_queue = np.argsort(queue, kind='stable')
  ends = np.searchsorted(queue[by_queue], np.arange(len(shapes) * count + 1))
  full: list[tuple[int, np.ndarray]] = []
  rest, left = [], np.zeros(0, np.int64)
  for n, (rows, _) in enumerate(shapes):
    waiting = [left]
    for k in range(n * count, (n + 1) * count):
      inside = by_queue[ends[k] : ends[k + 1]]
      cut = len(inside) // rows * rows
      full += [(n, inside[at : at + rows]) for at in range(0, cut, rows)]
      waiting.append(inside[cut:])
    left = np.concatenate(waiting)
    cut = len(left) // rows * rows if n + 1 < len(shapes) else len(left)
    rest += [(n, left[at : at + rows]) for at in range(0, cut, rows)]
    left = left[cut:]
  full.sort(key=lambda batch: batch[1][-1])  # as they fill
  return layout_lib.one_per_row([*full, *rest], sizes)


def _check_first(corpus, data, seed):
  """Raises InputError if all rows, not only the sample's, are longer."""
  windows = corpus.windows(data, 'train', seed)
  _, start, stop = windows.at(np.arange(len(windows)))
  shortest = np.min((stop - start - 1)[stop - start > 1], initial=data.length)
  if shortest <= data.boundaries[0]:
    return
  raise errors.InputError(
    f'data.boundaries={data.boundaries!r}: the first one is below the shortest '
    f'of all rows, {shortest} tokens: begin with {shortest} or more'
  )


def quantile_boundaries(
  lengths: Iterable[int], buckets: int, longest: int
) -> tuple[int, ...]:
  """Returns ascending bucket lengths that divide the rows evenly.

  The last one is `longest`, the others are multiples of 8.
  """
  quantiles = np.arange(1, buckets) / buckets
  return _rounded(
    np.quantile([*lengths], quantiles) if buckets > 1 else [], longest
  )


def balanced_boundaries(
  lengths: Iterable[int], buckets: int, longest: int
) -> tuple[int, ...]:
  """Returns ascending bucket lengths that divide the tokens evenly.

  So each bucket is the same amount of work. The last one is `longest`, the
  others are multiples of 8.
  """
  ascending = np.sort([*lengths])
  quantiles = np.arange(1, buckets) / buckets
  tokens = np.cumsum(ascending)
  cuts = ascending[np.searchsorted(tokens, quantiles * tokens[-1])]
  return _rounded(cuts, longest)


def _rounded(cuts, longest):
  rounded = {8 * int(np.ceil(cut / 8)) for cut in cuts}
  return (*sorted(cut for cut in rounded if cut < longest), longest)


def power_boundaries(longest: int) -> tuple[int, ...]:
  """Returns 8, 16, 32 and so on, then `longest`."""
  powers = (8 << n for n in range(longest.bit_length()))
  return (*(n for n in powers if n < longest), longest)


def least_padding_boundaries(
  lengths: Iterable[int], buckets: int, longest: int
) -> tuple[int, ...]:
  """Returns the ascending bucket lengths that pad these rows least.

  The last one is `longest`. Exact: a dynamic program over the lengths that
  occur, quadratic in their number.
  """
  values, counts = np.unique([*lengths, longest], return_counts=True)
  counts[-1] -= 1  # `longest` was added here
  rows = np.concatenate([[0], np.cumsum(counts)])
  # A bucket from values[i] to values[j] pads all of its rows to values[j].
  size = (rows[None, 1:] - rows[:-1, None]) * values.astype(float)
  size[np.tril_indices(len(values), -1)] = np.inf
  least, choices = size[0], []
  for _ in range(min(buckets, len(values)) - 1):
    total = least[:-1, None] + size[1:]
    choices.append(np.argmin(total, 0))
    least = np.min(total, 0)
  last = [len(values) - 1]
  for choice in reversed(choices):
    last.append(int(choice[last[-1]]))
  return tuple(int(values[n]) for n in reversed(last))
