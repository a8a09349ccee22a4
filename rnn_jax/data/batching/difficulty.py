"""Numbers that say how hard an example is, from its ids.

    length       the tokens, n
    rarity       the logarithm of their perplexity under a unigram model, nats:
                 -1/n sum_t log p(x_t)      p(v) = (count(v) + 1) / (total + V)
    complexity   distinct tokens / sqrt(n)

Ids that represent a class aren't among the V tokens and don't count. Complexity
is that of the vocabulary, whatever the tokenizer; the root makes it depend less
on the length than distinct / n does. That of the syntax would need a parser.
Source: Guiraud, "Les caractères statistiques du vocabulaire", 1954.
"""

from collections.abc import Iterable

import numpy as np

LENGTH, RARITY, COMPLEXITY = range(3)


class Unigram:
  """A model of single tokens, smoothed by adding one."""

  def __init__(self, examples: Iterable[np.ndarray], vocabulary: int) -> None:
    self._vocabulary = vocabulary
    counts = np.ones(vocabulary)
    for ids in examples:
      counts += np.bincount(self._tokens(ids), minlength=vocabulary)
    self._surprise = np.log(counts.sum()) - np.log(counts)

  def rarity(self, ids: np.ndarray) -> float:
    """Returns the mean surprise of an example's tokens; 0 if it has none."""
    tokens = self._tokens(ids)
    return float(self._surprise[tokens].mean()) if len(tokens) else 0.0

  def measure(self, ids: np.ndarray) -> np.ndarray:
    """Returns length, rarity and complexity of an example, as float64."""
    tokens = self._tokens(ids)
    complexity = len(np.unique(tokens)) / np.sqrt(max(len(tokens), 1))
    return np.array([len(ids), self.rarity(ids), complexity])

  def _tokens(self, ids):
    """Returns the tokens of an example after its first, without classes."""
    ids = np.asarray(ids)
    plain = np.maximum(ids, ~ids)[1:]  # the first is never predicted
    return plain[plain < self._vocabulary]


def deviations(features_NxF: np.ndarray) -> np.ndarray:
  """Returns the standard deviation of each feature, 1 where that is 0."""
  deviation_F = features_NxF.std(0)
  return np.where(deviation_F > 0, deviation_F, 1.0)
