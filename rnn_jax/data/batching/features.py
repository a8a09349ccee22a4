"""Numbers that say how hard an example is, from its ids.

    length       the tokens, n
    rarity       the logarithm of their perplexity under a unigram model
    complexity   distinct tokens / sqrt(n)

Complexity is that of the vocabulary, whatever the tokenizer; the root makes it
depend less on the length than distinct / n does. That of the syntax would need
a parser.
Source: Guiraud, "Les caractères statistiques du vocabulaire", 1954.
"""

import numpy as np

from rnn_jax.data.batching import rarity

LENGTH, RARITY, COMPLEXITY = range(3)


def measure(unigram: rarity.Unigram, ids: np.ndarray) -> np.ndarray:
  """Returns length, rarity and complexity of an example, as float64."""
  tokens = unigram.tokens(ids)
  complexity = len(np.unique(tokens)) / np.sqrt(max(len(tokens), 1))
  return np.array([len(ids), unigram.rarity(ids), complexity])


def deviations(features_NxF: np.ndarray) -> np.ndarray:
  """Returns the standard deviation of each feature, 1 where that is 0."""
  deviation_F = features_NxF.std(0)
  return np.where(deviation_F > 0, deviation_F, 1.0)
