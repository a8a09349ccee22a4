"""Curves over the distance in time, from the sums of flow.py. NumPy only."""

from collections.abc import Sequence

import numpy as np


def norms(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
  """Returns g by distance, from `flow.sums` of one or more batches.

  It ends where no row reaches further; it is empty if no row has a target.
  """
  longest = max(len(counts) for _, counts in parts)
  total = np.zeros((2, longest))
  for squares, counts in parts:
    total[0, : len(squares)] += np.asarray(squares)
    total[1, : len(counts)] += np.asarray(counts)
  reached = total[1] > 0
  return np.sqrt(total[0, reached] / total[1, reached])


def octaves(norms: Sequence[float]) -> dict[int, float]:
  """Returns {first distance: root mean square of g up to twice that}."""
  octaves, begin = {}, 1
  while begin < len(norms):
    part = np.array(norms[begin : 2 * begin], float)
    octaves[begin] = float(np.sqrt(np.mean(part**2)))
    begin *= 2
  return octaves
