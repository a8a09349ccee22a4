"""The same random tokens for every subject, from NumPy."""

import numpy as np

VOCABULARY = 512


def tokens(rows, length, seed=0):
  """Random tokens, rows x (length + 1): inputs, and targets one later."""
  rng = np.random.default_rng(seed)
  return rng.integers(0, VOCABULARY, (rows, length + 1), dtype=np.int32)
