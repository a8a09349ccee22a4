"""What a forecaster predicts of each future reading: O numbers, and their loss.

    quantiles    levels tau_1 < ... < tau_Q; the one nearest to 1/2 is free, and
                 every other is its neighbor plus or minus softplus(.): they
                 can't cross, whatever the parameters are. The loss is
                 mean over levels of 2 max(tau e, (tau - 1) e), e = y - q
    student_t    location, scale and degrees of freedom nu > 2, of which the
                 loss is -log p(y)
    point        one number, with the loss |y - f|

Shapes: the head's outputs BxLxHxO, readings BxLxH, H the horizon. Sources:
Koenker and Bassett, "Regression Quantiles", 1978; Park et al., "Learning
Quantile Functions without Quantile Crossing for Distribution-free Time Series
Forecasting", 2022; Salinas et al., "DeepAR: Probabilistic forecasting with
autoregressive recurrent networks", 2020.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

KINDS = 'quantiles', 'student_t', 'point'
MIN_SCALE = 1e-4  # of a Student-t distribution, in scaled readings
MEDIAN = 0.5


class Head:
  """A head's numbers; `outputs` is O.

  Args:
    kind: one of KINDS.
    levels: of the quantiles, ascending.
  """

  def __init__(self, kind: str, levels: Sequence[float]) -> None:
    self.kind, self.levels = kind, tuple(levels)
    self.outputs = {'student_t': 3, 'point': 1}.get(kind, len(self.levels))
    distances = np.abs(np.array([*self.levels, MEDIAN]) - MEDIAN)
    self._middle = int(np.argmin(distances[: len(self.levels) or 1]))

  def numbers(self, out: jax.Array, center_BxLxH: jax.Array) -> jax.Array:
    """Returns what is predicted, like `out`, BxLxHxO, float32.

    Args:
      out: the head's outputs.
      center_BxLxH: that the location, or the free quantile, is added to.
    """
    out = out.astype(jnp.float32)
    if self.kind == 'point':
      return out + center_BxLxH[..., None]
    if self.kind == 'student_t':
      scale = jax.nn.softplus(out[..., 1]) + MIN_SCALE
      freedom = 2 + jax.nn.softplus(out[..., 2])
      return jnp.stack([out[..., 0] + center_BxLxH, scale, freedom], -1)
    # Added one by one: a sum in another order could round to a crossing.
    rows = {self._middle: out[..., self._middle] + center_BxLxH}
    for n in range(self._middle + 1, self.outputs):
      rows[n] = rows[n - 1] + jax.nn.softplus(out[..., n])
    for n in range(self._middle - 1, -1, -1):
      rows[n] = rows[n + 1] - jax.nn.softplus(out[..., n])
    return jnp.stack([rows[n] for n in range(self.outputs)], -1)

  def loss(self, numbers: jax.Array, future_BxLxH: jax.Array) -> jax.Array:
    """Returns the loss of each reading, BxLxH, none of which is missing."""
    if self.kind == 'student_t':
      return -student_t_log(numbers, future_BxLxH)
    error = future_BxLxH[..., None] - numbers
    if self.kind == 'point':
      return jnp.abs(error[..., 0])
    levels = jnp.array(self.levels, jnp.float32)[None, None, None]
    return 2 * jnp.mean(jnp.maximum(levels * error, (levels - 1) * error), -1)

  def median(self, numbers: jax.Array) -> jax.Array:
    """Returns the point forecast, BxLxH: the free quantile or the location."""
    return numbers[..., self._middle if self.kind == 'quantiles' else 0]

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


def student_t_log(numbers: jax.Array, y: jax.Array) -> jax.Array:
  """Returns log p(y) of a Student-t distribution, in nats.

  `numbers` are ...x3: location, scale, degrees of freedom.
  """
  loc, scale, freedom = (numbers[..., n] for n in range(3))
  z = (y - loc) / scale
  log = jax.scipy.special.gammaln
  constant = log((freedom + 1) / 2) - log(freedom / 2)
  constant -= 0.5 * jnp.log(freedom * jnp.pi) + jnp.log(scale)
  return constant - (freedom + 1) / 2 * jnp.log1p(z**2 / freedom)
