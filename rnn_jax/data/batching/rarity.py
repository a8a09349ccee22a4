"""How rare the tokens of an example are, in nats.

  rarity(x) = -1/n sum_t log p(x_t)      p(v) = (count(v) + 1) / (total + V)

the logarithm of its perplexity under a unigram model. Ids that stand for a
class are none of the V tokens and do not count.
"""

from collections.abc import Iterable

import numpy as np


class Unigram:
  """A model of single tokens, smoothed by adding one."""

  def __init__(self, examples: Iterable[np.ndarray], vocabulary: int):
    self._vocabulary = vocabulary
    counts = np.ones(vocabulary)
    for ids in examples:
      counts += np.bincount(self._tokens(ids), minlength=vocabulary)
    self._surprise = np.log(counts.sum()) - np.log(counts)

  def rarity(self, ids: np.ndarray) -> float:
    """Returns the mean surprise of an example's tokens; 0 if it has none."""
    tokens = self._tokens(ids)
    return float(self._surprise[tokens].mean()) if len(tokens) else 0.0

  def _tokens(self, ids):
    plain = np.maximum(ids, ~ids)[1:]  # the first one is only read
    return plain[plain < self._vocabulary]


class Split:
  """Which of `count` kinds, from common to rare, a row of a bucket is of."""

  def __init__(self, unigram: Unigram, rows, lengths, count: int):
    """Chooses cuts that share these rows evenly, within each of `lengths`."""
    self.count = count
    self._unigram = unigram
    found = np.array([unigram.rarity(row) for row in rows])
    buckets = np.searchsorted(lengths, [len(row) - 1 for row in rows])
    inner = np.arange(1, count) / count
    self._cuts = []
    for bucket in range(len(lengths)):
      here = found[buckets == bucket]
      self._cuts.append(np.quantile(here if len(here) else found, inner))

  def kind(self, bucket: int, row: np.ndarray) -> int:
    """Returns a number from 0, the most common, to `count` - 1."""
    cuts = self._cuts[bucket]
    return int(np.searchsorted(cuts, self._unigram.rarity(row)))
