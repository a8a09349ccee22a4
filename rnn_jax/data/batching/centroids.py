"""Buckets by several criteria: a row goes to the nearest centroid.

    level(s) = argmin_b |f(s) - c_b|

f are the features of a row (features.py), each divided by its standard
deviation. The rows of one length have centroids c_b of their own, by k-means
(Lloyd, "Least Squares Quantization in PCM", 1982) on a sample. They start at
the rows whose rarities are evenly spaced quantiles, so nothing is random.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from rnn_jax.data.batching import features
from rnn_jax.data.batching import rarity

ITERATIONS = 50


class Split:
  """Splits each bucket into `count` levels, the nearest of its centroids."""

  def __init__(
    self,
    unigram: rarity.Unigram,
    rows: Sequence[np.ndarray],
    lengths: Sequence[int],
    count: int,
  ) -> None:
    """Computes the centroids of each bucket.

    Args:
      unigram: the model that measures rarity.
      rows: the ids of a sample of rows.
      lengths: of the buckets, ascending.
      count: the number of levels.
    """
    self.count = count
    self._unigram = unigram
    features_NxF = np.array([features.measure(unigram, row) for row in rows])
    self._scale_F = features.deviations(features_NxF)
    scaled_NxF = features_NxF / self._scale_F
    self._centroids = [
      _k_means(inside_NxF, count)
      for inside_NxF in rarity.by_bucket(scaled_NxF, rows, lengths, count)
    ]

  def level(self, bucket: int, row: np.ndarray) -> int:
    """Returns the number of the nearest centroid, from 0 to `count` - 1."""
    scaled_F = features.measure(self._unigram, row) / self._scale_F
    away = np.linalg.norm(self._centroids[bucket] - scaled_F[None], axis=1)
    return int(np.argmin(away))


def _k_means(points_NxF, count):
  from scipy.cluster import vq  # takes long to import

  ascending = np.argsort(points_NxF[:, features.RARITY], kind='stable')
  quantiles = (2 * np.arange(count) + 1) * len(points_NxF) // (2 * count)
  first = points_NxF[ascending[quantiles]]
  with warnings.catch_warnings():
    # A centroid without rows stays where it was.
    warnings.filterwarnings('ignore', 'One of the clusters is empty')
    centroids, _ = vq.kmeans2(points_NxF, first, ITERATIONS, minit='matrix')
  return centroids
