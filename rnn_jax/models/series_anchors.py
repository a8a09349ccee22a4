"""The forecasts that a forecaster's head corrects: its anchors.

    season         y_{t+h} = the reading of the same place a season before
    last           y_{t+h} = y_t
    none           y_{t+h} = 0, the mean of a normalized window
    seasonal_ar    y_{t+h} = mean over J of sum_{j<J} w_{k,j} y_{t+h-m(k+j)}

`seasonal_ar` is a seasonal autoregression (Box and Jenkins, "Time Series
Analysis: Forecasting and Control", 1970) of the window alone, m the season. The
readings of the k-th season to come are regressed on those of J seasons before
them, so that a day may resemble both the last one and that of a week ago:

    w_k = argmin_w sum_s (z_s - sum_j w_j z_{s-m(k+j)})^2 + c |w - e_0|^2

with z the normalized window, a missing reading 0, and c = RIDGE times the mean
of the regressors' sums of squares: without a pattern to be seen that is
'season'. The forecast is the mean of those of three J, a quarter, a half and
three quarters of the seasons in the window (SEASONS at most): they err
differently, as the more regressors there are the fewer readings tell their
weights. It has no parameters and no state, so that a new series has it from its
first window on.
"""

import math

import jax
import jax.numpy as jnp

KINDS = 'season', 'seasonal_ar', 'last', 'none'
RIDGE = 0.01  # of the mean of the regressors' sums of squares
TINY = 1e-6  # of a flat window
SEASONS = 56  # of a window that 'seasonal_ar' reads, at most


def least_window(kind: str, season: int, horizon: int) -> int:
  """Returns the fewest readings of a window that an anchor reads."""
  if kind == 'seasonal_ar':
    return 2 * math.ceil(horizon / season) * season
  return season if kind == 'season' else 1


def forecasts(
  kind: str,
  z_BxLxTxW: jax.Array,
  observed_BxLxTxW: jax.Array,
  season: int,
  horizon: int,
) -> jax.Array:
  """Returns the forecasts of each step, BxLxTxH.

  Args:
    kind: one of KINDS.
    z_BxLxTxW: windows of readings, normalized; missing ones are 0.
    observed_BxLxTxW: which are there.
    season: of the readings.
    horizon: H.
  """
  if kind == 'none':
    return jnp.zeros((*z_BxLxTxW.shape[:3], horizon), jnp.float32)
  if kind == 'seasonal_ar':
    return _autoregression(z_BxLxTxW, season, horizon)
  W, season = z_BxLxTxW.shape[-1], season if kind == 'season' else 1
  at = W - season + jnp.arange(horizon) % season
  # The latest reading stands for one that is missing a season before.
  last = jnp.argmax(
    jnp.where(observed_BxLxTxW, jnp.arange(1, W + 1)[None, None, None], 0), -1
  )
  latest = jnp.take_along_axis(z_BxLxTxW, last[..., None], -1)
  known = jnp.take(observed_BxLxTxW, at, axis=-1)
  return jnp.where(known, jnp.take(z_BxLxTxW, at, axis=-1), latest)


def _autoregression(z_BxLxTxW, season, horizon):
  """Returns the forecasts of 'seasonal_ar', from the last S seasons."""
  S = min(z_BxLxTxW.shape[-1] // season, SEASONS)
  z = z_BxLxTxW[..., -S * season :].astype(jnp.float32)
  z_BxLxTxSxM = z.reshape(*z.shape[:-1], S, season)
  product_BxLxTxSxS = jnp.einsum('...sm,...rm->...sr', z_BxLxTxSxM, z_BxLxTxSxM)
  made = []
  for k in range(1, math.ceil(horizon / season) + 1):
    each = [
      _regressed(z_BxLxTxSxM, product_BxLxTxSxS, k, J) for J in _orders(S, k)
    ]
    made.append(sum(each[1:], each[0]) / len(each))
  return jnp.concatenate(made, -1)[..., :horizon]


def _orders(S, k):
  """Returns each J for the k-th season to come, from S seasons."""
  return [min(max(part * S // 4, 1), S - k) for part in (1, 2, 3)]


def _regressed(z_BxLxTxSxM, product_BxLxTxSxS, k, J):
  """Returns the forecast of the k-th season to come from J, BxLxTxM."""
  S = z_BxLxTxSxM.shape[-2]
  square, cross = jnp.float32(0), jnp.float32(0)
  for s in range(k + J - 1, S):  # each season with all its regressors
    own = slice(s - k - J + 1, s - k + 1)
    square += product_BxLxTxSxS[..., own, own]
    cross += product_BxLxTxSxS[..., s, own]
  # The last regressor is the latest one: that of w_{k,0}.
  c = RIDGE / J * jnp.trace(square, axis1=-2, axis2=-1)[..., None] + TINY
  square += c[..., None] * jnp.eye(J)[None, None, None]
  cross = jnp.concatenate([cross[..., :-1], cross[..., -1:] + c], -1)
  w_BxLxTxJ = _solved(square, cross)
  return jnp.sum(w_BxLxTxJ[..., None] * z_BxLxTxSxM[..., S - J :, :], -2)


def _solved(a_BxLxTxJxJ, b_BxLxTxJ):
  """Returns x of a x = b, for positive definite matrices, by elimination.

  Its operations are those of each row by itself, in one order: jax.scipy's are
  LAPACK's, which ONNX and a row's bits among others don't have.
  """
  J = b_BxLxTxJ.shape[-1]
  rows = jnp.concatenate([a_BxLxTxJxJ, b_BxLxTxJ[..., None]], -1)
  for j in range(J):
    pivot = rows[..., j : j + 1, :] / rows[..., j : j + 1, j : j + 1]
    own_1x1x1xJx1 = (jnp.arange(J) == j)[None, None, None, :, None]
    factor = rows[..., j : j + 1] - own_1x1x1xJx1
    rows -= factor * pivot
  return rows[..., -1]
