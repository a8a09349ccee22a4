"""How far probabilities of classes agree with how often they are right.

Predictions are sorted into bins by confidence, the probability of the predicted
class:

    ECE      sum over bins of n_bin / N |accuracy - mean confidence|
    Brier    mean over examples of sum_c (p_c - [c is the label])^2

ECE has 15 bins of equal width, adaptive ECE 15 of equal numbers of predictions.
All of it is computed in float64. Sources: Guo et al., "On Calibration of Modern
Neural Networks", 2017; Nixon et al., "Measuring Calibration in Deep Learning",
2019; Brier, "Verification of Forecasts Expressed in Terms of Probability",
1950.
"""

import dataclasses

import numpy as np
from scipy import special

BINS = 15
SCORES = 'nll', 'ece', 'adaptive_ece', 'brier'


@dataclasses.dataclass(frozen=True)
class Bins:
  """Predictions in bins of confidence.

  Attributes:
    counts: how many are in each bin.
    confidence: their mean confidence, 0 of an empty bin.
    accuracy: how many of them are right, a fraction; 0 of an empty bin.
  """

  counts: np.ndarray
  confidence: np.ndarray
  accuracy: np.ndarray

  @property
  def error(self) -> float:
    """The expected calibration error."""
    gaps = np.abs(self.accuracy - self.confidence)
    return float(self.counts @ gaps / max(self.counts.sum(), 1))


def equal_width(confidence_N: np.ndarray, hits_N: np.ndarray) -> Bins:
  """Returns BINS bins, number b of confidences in (b, b + 1] / BINS."""
  place_N = np.ceil(np.float64(confidence_N) * BINS).astype(int) - 1
  return _binned(np.clip(place_N, 0, BINS - 1), confidence_N, hits_N)


def equal_counts(confidence_N: np.ndarray, hits_N: np.ndarray) -> Bins:
  """Returns BINS bins with as many predictions each, or 1 more."""
  order_N = np.argsort(confidence_N, kind='stable')
  place_N = np.empty(len(order_N), int)
  for n, chosen in enumerate(np.array_split(order_N, BINS)):
    place_N[chosen] = n
  return _binned(place_N, confidence_N, hits_N)


def _binned(place_N, confidence_N, hits_N):
  counts = np.bincount(place_N, minlength=BINS)
  sums = [
    np.bincount(place_N, weights=np.float64(x), minlength=BINS)
    for x in (confidence_N, hits_N)
  ]
  return Bins(counts, *(x / np.maximum(counts, 1) for x in sums))


def brier(p_NxC: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
  """Returns each example's sum over classes of (p - [it is the label])^2."""
  missed_NxC = np.array(p_NxC, np.float64)  # a copy
  missed_NxC[np.arange(len(missed_NxC)), labels_N] -= 1
  return np.sum(missed_NxC**2, -1)


def quality(
  logits_NxC: np.ndarray, labels_N: np.ndarray, temperature: float
) -> dict[str, float]:
  """Returns the SCORES of softmax(logits / temperature)."""
  logp_NxC = special.log_softmax(np.float64(logits_NxC) / temperature, -1)
  p_NxC = np.exp(logp_NxC)
  best_N, hits_N = p_NxC.max(-1), logits_NxC.argmax(-1) == labels_N
  return {
    'nll': float(-np.mean(logp_NxC[np.arange(len(labels_N)), labels_N])),
    'ece': equal_width(best_N, hits_N).error,
    'adaptive_ece': equal_counts(best_N, hits_N).error,
    'brier': float(np.mean(brier(p_NxC, labels_N))),
  }
