"""Buckets of similar length: a row is padded to the bucket it fits best.

A bucket with enough rows becomes a batch. The rows that wait in a bucket are
part of the iterator's state, as positions, and are made again on restore. If
rows are split by rarity, or by several features, a bucket has a queue for each
level, and a batch has rows of one level; the shapes stay the same.
"""

import dataclasses
import functools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Self

import grain
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import loader
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import centroids
from rnn_jax.data.batching import rarity
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching import shapes as shapes_lib

BUCKETINGS = ('quantile', 'balanced', 'least_padding', 'powers')


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  boundaries: tuple[int, ...] = ()  # bucket lengths; empty: by `bucketing`
  bucketing: str = config_lib.option('quantile', choices=BUCKETINGS)
  # The largest number of buckets; 'powers' has its own.
  buckets: int = config_lib.option(4, least=1, most=1024)
  # Above 1: also splits each bucket by rarity.
  rarity_buckets: int = config_lib.option(1, least=1, most=64)
  # Above 1: also splits each bucket by the nearest of so many centroids.
  feature_buckets: int = config_lib.option(1, least=1, most=64)

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


def make(
  examples: loader.Loader,
  shapes: tuple[tuple[int, int], ...],
  data: Config,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches; the arguments are those of the package's `make`."""
  levels = max(data.rarity_buckets, data.feature_buckets)
  if corpus is None or seed is None or levels == 1:
    return Buckets(examples, shapes)
  kind = rarity.Split if data.feature_buckets == 1 else centroids.Split
  split = kind(
    shapes_lib.unigram(corpus, data, seed),
    shapes_lib.sample(corpus, data, seed),
    lengths(corpus, data, seed),
    levels,
  )
  return Buckets(examples, shapes, split)


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


class Buckets(grain.DatasetIterator):
  """Batches of `shapes`, (rows, length), by ascending length."""

  def __init__(
    self,
    examples: loader.Loader,
    shapes: Sequence[tuple[int, int]],
    split: rarity.Split | centroids.Split | None = None,
  ) -> None:
    super().__init__(examples)
    self._examples = examples
    self._split = split
    levels = 1 if split is None else split.count
    self._lengths = [length for _, length in shapes]
    self._shapes = [shape for shape in shapes for _ in range(levels)]
    # Rows by queue, each (position of its example, number in it, ids).
    self._waiting: list[list[tuple[int, int, np.ndarray]]] = [
      [] for _ in self._shapes
    ]

  def __next__(self) -> batch_lib.Batch:
    while True:
      for queue, (rows, _) in enumerate(self._shapes):
        if len(self._waiting[queue]) >= rows:
          return self._emit(queue)
      try:
        position, ids = next(self._examples)
      except StopIteration:
        return self._emit_rest()
      for number, row in enumerate(self._cut(ids)):
        self._waiting[self._queue(row)].append((position, number, row))

  def get_state(self) -> dict[str, Any]:
    return {
      'examples': self._examples.get_state(),
      'waiting': [
        [[position, number] for position, number, _ in queue]
        for queue in self._waiting
      ],
    }

  def set_state(self, state: dict[str, Any]) -> None:
    self._examples.set_state(state['examples'])
    self._waiting = [
      [
        (position, number, self._cut(self._examples.make(position))[number])
        for position, number in queue
      ]
      for queue in state['waiting']
    ]

  def _cut(self, ids):
    return rows_lib.cut(ids, self._lengths[-1])

  def _queue(self, row):
    bucket = int(np.searchsorted(self._lengths, len(row) - 1))
    if self._split is None:
      return bucket
    return bucket * self._split.count + self._split.level(bucket, row)

  def _emit(self, queue):
    rows, length = self._shapes[queue]
    waiting = self._waiting[queue]
    batch = rows_lib.blank(rows, length)
    for row, (_, _, ids) in enumerate(waiting[:rows]):
      rows_lib.write(batch, row, 0, ids)
    batch.starts_BxL[:, 0] = 1
    self._waiting[queue] = waiting[rows:]
    return batch

  def _emit_rest(self):
    for queue, waiting in enumerate(self._waiting):
      if waiting:
        return self._emit(queue)
    raise StopIteration
