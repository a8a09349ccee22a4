"""What a forecaster predicts of each future reading: O numbers, and their loss.

    quantiles    levels tau_1 < ... < tau_Q; the one nearest to 1/2 is free, and
                 every other is its neighbor plus or minus positive(.): they
                 can't cross, whatever the parameters are. The loss is
                 mean over levels of 2 max(tau e, (tau - 1) e), e = y - q
    student_t    location, scale and degrees of freedom nu > 2, of which the
                 loss is -log p(y)
    point        one number, with the loss |y - f|

positive(x) = (x + sqrt(x^2 + 1)) / 2 is a softplus without an exponential.

Shapes: the head's numbers are a tuple of O arrays BxLxH, H the horizon: so the
loss is one pass over them. Sources: Koenker and Bassett, "Regression
Quantiles", 1978; Park et al., "Learning Quantile Functions without Quantile
Crossing for Distribution-free Time Series Forecasting", 2022; Salinas et al.,
"DeepAR: Probabilistic forecasting with autoregressive recurrent networks",
2020; Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", 2021.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

KINDS = 'quantiles', 'student_t', 'point'
MIN_SCALE = 1e-4  # of a Student-t distribution, in scaled readings
MEDIAN = 0.5

Numbers = tuple[jax.Array, ...]  # O arrays BxLxH


class Head:
  """A head: `outputs` is O, number `middle` the median or the location.

  Args:
    kind: one of KINDS.
    levels: of the quantiles, ascending.
  """

  def __init__(self, kind: str, levels: Sequence[float]) -> None:
    self.kind, self.levels = kind, tuple(levels)
    self.outputs = {'student_t': 3, 'point': 1}.get(kind, len(self.levels))
    distances = np.abs(np.array(self.levels) - MEDIAN)
    self.middle = int(np.argmin(distances)) if kind == 'quantiles' else 0

  def numbers(self, out: jax.Array, center_BxLxH: jax.Array) -> Numbers:
    """Returns what is predicted, float32.

    Args:
      out: the head's outputs, BxLxOxH.
      center_BxLxH: that the location, or the free quantile, is added to.
    """
    rows = [out[:, :, n].astype(jnp.float32) for n in range(self.outputs)]
    middle = self.middle
    rows[middle] = rows[middle] + center_BxLxH
    if self.kind == 'student_t':
      scale = positive(rows[1]) + MIN_SCALE
      return rows[0], scale, 2 + positive(rows[2])
    # Added one by one: a sum in another order could round to a crossing.
    for n in range(middle + 1, self.outputs):
      rows[n] = rows[n - 1] + positive(rows[n])
    for n in range(middle - 1, -1, -1):
      rows[n] = rows[n + 1] - positive(rows[n])
    return tuple(rows)

  def loss(self, numbers: Numbers, future_BxLxH: jax.Array) -> jax.Array:
    """Returns the loss of each reading, BxLxH, none of which is missing."""
    if self.kind == 'student_t':
      return -student_t_log(numbers, future_BxLxH)
    errors = [future_BxLxH - each for each in numbers]
    if self.kind == 'point':
      return jnp.abs(errors[0])
    losses = [
      jnp.maximum(level * error, (level - 1) * error)
      for level, error in zip(self.levels, errors, strict=True)
    ]
    return sum(losses[1:], losses[0]) * (2 / len(losses))

  def median(self, numbers: Numbers) -> jax.Array:
    """Returns the point forecast, BxLxH: the free quantile or the location."""
    return numbers[self.middle]

  def quantiles(
    self, numbers: np.ndarray, levels: Sequence[float]
  ) -> np.ndarray:
    """Returns quantiles, ...xQ, float64, ascending.

    Args:
      numbers: ...xO; of 'quantiles' a level between two of the head's own is
        interpolated linearly.
      levels: ascending; of 'point' they have no effect.
    """
    numbers = np.asarray(numbers, np.float64)
    if self.kind == 'point':
      return np.repeat(numbers, len(levels), -1)
    if self.kind == 'student_t':
      from scipy import stats  # takes long to import

      loc, scale, freedom = (numbers[..., n, None] for n in range(3))
      return loc + scale * stats.t.ppf(np.array(levels), freedom)
    places = np.interp(levels, self.levels, np.arange(self.outputs))
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, self.outputs - 1)
    share = places - low
    between = (1 - share) * numbers[..., low] + share * numbers[..., high]
    # Interpolation rounds.
    return np.maximum.accumulate(between, -1)


def positive(x: jax.Array) -> jax.Array:
  """Returns (x + sqrt(x^2 + 1)) / 2, never below 0, however it rounds."""
  return jnp.maximum(0.5 * (x + jnp.sqrt(jnp.square(x) + 1)), 0)


def student_t_log(numbers: Numbers, y: jax.Array) -> jax.Array:
  """Returns log p(y) of a Student-t distribution, in nats.

  `numbers` are location, scale and degrees of freedom.
  """
  loc, scale, freedom = numbers
  z = (y - loc) / scale
  log = jax.scipy.special.gammaln
  constant = log((freedom + 1) / 2) - log(freedom / 2)
  constant -= 0.5 * jnp.log(freedom * jnp.pi) + jnp.log(scale)
  return constant - (freedom + 1) / 2 * jnp.log1p(z**2 / freedom)
