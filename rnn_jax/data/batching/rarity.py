"""How rare the tokens of an example are, in nats.

  rarity(x) = -1/n sum_t log p(x_t)      p(v) = (count(v) + 1) / (total + V)

the logarithm of its perplexity under a unigram model. Ids that represent a
class aren't among the V tokens and don't count.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np


class Unigram:
  """A model of single tokens, smoothed by adding one."""

  def __init__(self, examples: Iterable[np.ndarray], vocabulary: int) -> None:
    self._vocabulary = vocabulary
    counts = np.ones(vocabulary)
    for ids in examples:
      counts += np.bincount(self.tokens(ids), minlength=vocabulary)
    self._surprise = np.log(counts.sum()) - np.log(counts)

  def rarity(self, ids: np.ndarray) -> float:
    """Returns the mean surprise of an example's tokens; 0 if it has none."""
    tokens = self.tokens(ids)
    return float(self._surprise[tokens].mean()) if len(tokens) else 0.0

  def tokens(self, ids: np.ndarray) -> np.ndarray:
    """Returns the tokens of an example after its first, without classes."""
    ids = np.asarray(ids)
    plain = np.maximum(ids, ~ids)[1:]  # the first is never predicted
    return plain[plain < self._vocabulary]


class Split:
  """Splits each bucket into `count` levels of rarity."""

  def __init__(
    self,
    unigram: Unigram,
    rows: Sequence[np.ndarray],
    lengths: Sequence[int],
    count: int,
  ) -> None:
    """Computes thresholds that divide the rows of each bucket evenly.

    Args:
      unigram: the model that measures rarity.
      rows: the ids of a sample of rows.
      lengths: of the buckets, ascending.
      count: the number of levels.
    """
    self.count = count
    self._unigram = unigram
    rarities = np.array([unigram.rarity(row) for row in rows])
    quantiles = np.arange(1, count) / count
    self._thresholds = [
      np.quantile(inside, quantiles)
      for inside in by_bucket(rarities, rows, lengths)
    ]

  def level(self, bucket: int, row: np.ndarray) -> int:
    """Returns a number from 0, the most common, to `count` - 1."""
    thresholds = self._thresholds[bucket]
    return int(np.searchsorted(thresholds, self._unigram.rarity(row)))


def by_bucket(
  values: np.ndarray,
  rows: Sequence[np.ndarray],
  lengths: Sequence[int],
  least: int = 1,
) -> Iterator[np.ndarray]:
  """Yields the values of the rows in each bucket.

  Args:
    values: one or more of each row, rows first.
    rows: their ids.
    lengths: of the buckets, ascending.
    least: a bucket with fewer rows gets the values of all.
  """
  buckets = np.searchsorted(lengths, [len(row) - 1 for row in rows])
  for bucket in range(len(lengths)):
    inside = values[buckets == bucket]
    yield inside if len(inside) >= least else values
