"""What a forecaster predicts of each future reading: O numbers, and their loss.

    quantiles    levels tau_1 < ... < tau_Q; the one nearest to 1/2 is free, and
                 every other is its neighbor plus or minus positive(.): they
                 can't cross, whatever the parameters are. The loss is
                 mean over levels of 2 max(tau e, (tau - 1) e), e = y - q
    student_t    location, scale and degrees of freedom nu > 2, of which the
                 loss is -log p(y)
    negative_binomial
                 mean mu and dispersion alpha > 0 of counts x, whose variance is
                 mu + alpha mu^2, with the loss -log p(x)
    point        one number, with the loss |y - f|
    mean         one number, with the loss (y - f)^2

positive(x) = (x + sqrt(x^2 + 1)) / 2 is a softplus without an exponential. A
mean is positive(x / e) e, near x above e = 0.1, in units of the window's mean.

Shapes: the head's numbers are a tuple of O arrays BxLxH, H the readings to come
of all targets: so the loss is one pass over them. Sources: Koenker and Bassett,
"Regression Quantiles", 1978; Park et al., "Learning Quantile Functions without
Quantile Crossing for Distribution-free Time Series Forecasting", 2022; Salinas
et al., "DeepAR: Probabilistic forecasting with autoregressive recurrent
networks", 2020; Barron, "Squareplus: A Softplus-Like Algebraic Rectifier",
2021; Loader, "Fast and Accurate Computation of Binomial Probabilities", 2000.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

KINDS = 'quantiles', 'student_t', 'negative_binomial', 'point', 'mean'
OUTPUTS = {'student_t': 3, 'negative_binomial': 2, 'point': 1, 'mean': 1}
DEGREES = {'quantiles': 1, 'point': 1, 'mean': 2}
OF_DISTRIBUTIONS = 'student_t', 'negative_binomial'  # losses are in nats
MIN_SCALE = 1e-4  # of a Student-t distribution, in scaled readings
MIN_MEAN = 1e-4  # of a negative binomial distribution, in mean counts
MIN_DISPERSION = 1e-4  # of a negative binomial distribution
BEND = 0.1  # where a mean count leaves its center, in mean counts
SERIES = 8  # from here on, Stirling's series has float32's accuracy
MEDIAN = 0.5

Numbers = tuple[jax.Array, ...]  # O arrays BxLxH


class Head:
  """A head: `outputs` is O, number `middle` the median, location or mean.

  Args:
    kind: one of KINDS.
    levels: of the quantiles, ascending.
  """

  def __init__(self, kind: str, levels: Sequence[float]) -> None:
    self.kind, self.levels = kind, tuple(levels)
    self.outputs = OUTPUTS.get(kind, len(self.levels))
    distances = np.abs(np.array(self.levels) - MEDIAN)
    self.middle = int(np.argmin(distances)) if kind == 'quantiles' else 0

  @property
  def counts(self) -> bool:
    """Whether readings are counts, in units without a location."""
    return self.kind == 'negative_binomial'

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
    if self.kind == 'negative_binomial':
      mean = BEND * positive(rows[0] / BEND) + MIN_MEAN
      return mean, positive(rows[1]) + MIN_DISPERSION
    # Added one by one: a sum in another order could round to a crossing.
    for n in range(middle + 1, self.outputs):
      rows[n] = rows[n - 1] + positive(rows[n])
    for n in range(middle - 1, -1, -1):
      rows[n] = rows[n + 1] - positive(rows[n])
    return tuple(rows)

  def loss(
    self, numbers: Numbers, future_BxLxH: jax.Array, scale_BxLxH: jax.Array
  ) -> jax.Array:
    """Returns the loss of each reading, BxLxH.

    Args:
      numbers: of `numbers`.
      future_BxLxH: the readings, none of which is missing.
      scale_BxLxH: that they were divided by, and which makes them counts again.
    """
    if self.kind == 'student_t':
      return -student_t_log(numbers, future_BxLxH)
    if self.kind == 'negative_binomial':
      mean, dispersion = numbers
      counts = jnp.round(future_BxLxH * scale_BxLxH)
      return -negative_binomial_log((mean * scale_BxLxH, dispersion), counts)
    errors = [future_BxLxH - each for each in numbers]
    if self.kind == 'point':
      return jnp.abs(errors[0])
    if self.kind == 'mean':
      return jnp.square(errors[0])
    losses = [
      jnp.maximum(level * error, (level - 1) * error)
      for level, error in zip(self.levels, errors, strict=True)
    ]
    return sum(losses[1:], losses[0]) * (2 / len(losses))

  def median(self, numbers: Numbers) -> jax.Array:
    """Returns the point forecast, BxLxH: number `middle`."""
    return numbers[self.middle]

  @property
  def degree(self) -> int:
    """Of the loss in the unit of readings; 0: it is in nats."""
    return DEGREES.get(self.kind, 0)

  @property
  def draws(self) -> bool:
    """Whether it predicts a distribution, which readings are drawn from."""
    return self.kind in OF_DISTRIBUTIONS

  def draw(
    self, key: jax.Array, numbers_O: jax.Array, loc: jax.Array, scale: jax.Array
  ) -> jax.Array:
    """Returns a reading that is drawn, float32.

    Args:
      key: PRNG key.
      numbers_O: of a reading, in units of `scale` from `loc`.
      loc: of the step's window.
      scale: the same.
    """
    if self.kind == 'student_t':
      center, width, freedom = numbers_O
      return loc + scale * (center + width * jax.random.t(key, freedom))
    mean, dispersion = numbers_O
    # A Poisson variable whose mean is a gamma variable.
    of_mean, of_count = jax.random.split(key)
    gamma = jax.random.gamma(of_mean, 1 / dispersion) * dispersion
    count = jax.random.poisson(of_count, gamma * mean * scale)
    return count.astype(jnp.float32)

  def unscaled(
    self, numbers_OxH: np.ndarray, loc_H: np.ndarray, scale_H: np.ndarray
  ) -> np.ndarray:
    """Returns numbers in readings, float64, by their location and scale."""
    out = np.asarray(numbers_OxH, np.float64)
    if self.kind == 'student_t':
      return np.stack([out[0] * scale_H + loc_H, out[1] * scale_H, out[2]])
    if self.kind == 'negative_binomial':
      return np.stack([out[0] * scale_H, out[1]])
    return out * scale_H + loc_H

  def points(self, numbers: np.ndarray) -> np.ndarray:
    """Returns point forecasts: medians, or the one number that is predicted.

    `numbers` are ...xO.
    """
    if self.kind == 'negative_binomial':
      return self.quantiles(numbers, (MEDIAN,))[..., 0]
    return np.asarray(numbers, np.float64)[..., self.middle]

  def quantiles(
    self, numbers: np.ndarray, levels: Sequence[float]
  ) -> np.ndarray:
    """Returns quantiles, ...xQ, float64, ascending.

    Args:
      numbers: ...xO; of 'quantiles' a level between two of the head's own is
        interpolated linearly.
      levels: ascending; of 'point' and 'mean' they have no effect.
    """
    numbers = np.asarray(numbers, np.float64)
    if self.kind in ('point', 'mean'):
      return np.repeat(numbers, len(levels), -1)
    if self.kind == 'student_t':
      from scipy import stats  # takes long to import

      loc, scale, freedom = (numbers[..., n, None] for n in range(3))
      return loc + scale * stats.t.ppf(np.array(levels), freedom)
    if self.kind == 'negative_binomial':
      from scipy import stats  # takes long to import

      mean, dispersion = (numbers[..., n, None] for n in range(2))
      chance = 1 / (1 + dispersion * mean)
      return stats.nbinom.ppf(np.array(levels), 1 / dispersion, chance)
    if tuple(levels) == self.levels:
      return numbers + 0.0  # a sum as below, of which nothing is -0
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


def negative_binomial_log(numbers: Numbers, x: jax.Array) -> jax.Array:
  """Returns log p(x) of a negative binomial distribution, in nats.

  With r = 1 / alpha and d(z) the error of Stirling's formula, log gamma(z) =
  (z - 1/2) log z - z + log(2 pi) / 2 + d(z), large terms cancel (Loader, 2000):

      log p = r log((x + r) / (mu + r)) - x log(x (mu + r) / (mu (x + r)))
              - log(2 pi x (x + r) / r) / 2 + d(x + r) - d(r) - d(x)

  and log p(0) = -r log(1 + mu / r). The logarithms are of 1 plus what is small
  where x is near mu.

  Args:
    numbers: mean mu and dispersion alpha.
    x: counts.
  """
  mean, dispersion = numbers
  r = 1 / dispersion
  some = x > 0
  count = jnp.where(some, x, 1)
  away = count - mean
  log = r * jnp.log1p(away / (mean + r))
  log -= count * jnp.log1p(away / (mean * (1 + count * dispersion)))
  log -= 0.5 * jnp.log(2 * jnp.pi * count * (1 + count * dispersion))
  log += stirling_error(count + r) - stirling_error(r) - stirling_error(count)
  return jnp.where(some, log, -r * jnp.log1p(mean * dispersion))


def stirling_error(z: jax.Array) -> jax.Array:
  """Returns log gamma(z) - ((z - 1/2) log z - z + log(2 pi) / 2), z > 0."""
  large = jnp.maximum(z, SERIES)
  squared = jnp.square(large)
  series = (1 / 12 - (1 / 360 - 1 / (1260 * squared)) / squared) / large
  small = jnp.minimum(z, SERIES)
  half = 0.5 * jnp.log(2 * jnp.pi)
  log = jax.scipy.special.gammaln(small)
  exact = log - (small - 0.5) * jnp.log(small) + small - half
  return jnp.where(z < SERIES, exact, series)
