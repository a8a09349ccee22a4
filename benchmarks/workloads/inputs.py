"""The same random tokens for every workload, from NumPy."""

import numpy as np

VOCABULARY = 512


def tokens(rows: int, length: int, seed: int = 0) -> np.ndarray:
  """Random tokens, rows x (length + 1): inputs, and targets one later."""
  rng = np.random.default_rng(seed)
  return rng.integers(0, VOCABULARY, (rows, length + 1), dtype=np.int32)
