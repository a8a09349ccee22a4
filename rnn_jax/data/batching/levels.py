"""Levels that split a bucket, so that its rows are alike in more than length.

`Rarity` has thresholds that divide the rows of a bucket evenly. By `Features` a
row goes to the nearest centroid:

    level(s) = argmin_b |f(s) - c_b|

f are the features of a row (difficulty.py), each divided by its standard
deviation. The rows of one length have centroids c_b of their own, by k-means
(Lloyd, "Least Squares Quantization in PCM", 1982) on a sample. They start at
the rows whose rarities are evenly spaced quantiles, so nothing is random.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax.data.batching import difficulty

ITERATIONS = 50


class Split:
  """What both have in common: the levels of each bucket, from a sample.

  Args:
    unigram: the model that measures rows.
    rows: the ids of a sample of rows.
    lengths: of the buckets, ascending.
    count: the number of levels.
  """

  def __init__(
    self,
    unigram: difficulty.Unigram,
    rows: Sequence[np.ndarray],
    lengths: Sequence[int],
    count: int,
  ) -> None:
    self.count = count
    self._unigram = unigram
    values = self._measured(rows)
    buckets = np.searchsorted(lengths, [len(row) - 1 for row in rows])
    inside = [values[buckets == n] for n in range(len(lengths))]
    # A bucket with too few rows has the levels of all.
    self._levels: list[Any] = [
      self._fitted(x if len(x) >= count else values) for x in inside
    ]

  def level(self, bucket: int, row: np.ndarray) -> int:
    """Returns the level of a row, from 0 to `count` - 1."""
    raise NotImplementedError

  def _measured(self, rows):
    raise NotImplementedError

  def _fitted(self, values):
    raise NotImplementedError


class Rarity(Split):
  """Level 0 has the most common rows."""

  def level(self, bucket: int, row: np.ndarray) -> int:
    return int(np.searchsorted(self._levels[bucket], self._unigram.rarity(row)))

  def _measured(self, rows):
    return np.array([self._unigram.rarity(row) for row in rows])

  def _fitted(self, values):
    return np.quantile(values, np.arange(1, self.count) / self.count)


class Features(Split):
  """A level is the number of the nearest centroid."""

  def level(self, bucket: int, row: np.ndarray) -> int:
    scaled_F = self._unigram.measure(row) / self._scale_F
    away = np.linalg.norm(self._levels[bucket] - scaled_F[None], axis=1)
    return int(np.argmin(away))

  def _measured(self, rows):
    features_NxF = np.array([self._unigram.measure(row) for row in rows])
    self._scale_F = difficulty.deviations(features_NxF)
    return features_NxF / self._scale_F

  def _fitted(self, values):
    from scipy.cluster import vq  # takes long to import

    count = self.count
    ascending = np.argsort(values[:, difficulty.RARITY], kind='stable')
    quantiles = (2 * np.arange(count) + 1) * len(values) // (2 * count)
    first = values[ascending[quantiles]]
    with warnings.catch_warnings():
      # A centroid without rows stays where it was.
      warnings.filterwarnings('ignore', 'One of the clusters is empty')
      centroids, _ = vq.kmeans2(values, first, ITERATIONS, minit='matrix')
    return centroids
