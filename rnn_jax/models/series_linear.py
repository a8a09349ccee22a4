"""The linear forecast from a window, by least squares.

    W_direct = argmin sum_t w_t |y_t - a_t - W_direct z_t|^2 + c |W_direct|^2

with z_t, the anchor a_t and the readings to come y_t of models/series.py, w_t
the square of the loss's unit, and c = ridge times the mean of w z^2 times the
number of steps. It has a closed form: of linear forecasts it is hard to beat
(Toner and Darlow, "An Analysis of Linear Time Series Forecasting Models",
2024), so a model that begins with it learns only what it can't say. Every step
counts: neighbors share their windows, but not the readings to come.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.models import series

PyTree = Any
AT_ONCE = 512  # steps of a call
Unit = Callable[[jax.Array, jax.Array], jax.Array | None]


def fit(
  model: series.Forecaster, examples: Any, ridge: float, unit: Unit
) -> np.ndarray:
  """Returns W_direct, WxH, float32.

  Args:
    model: the forecaster.
    examples: of training, see data/series/examples.py.
    ridge: above 0.
    unit: of (windows ...xW, scale ...x1) the scale in units of the loss, ...x1;
      None: it is 1.
  """
  sizes, bound = model.sizes, model.bind({})

  @jax.jit
  def products(readings_BxLxW, future_BxLxH, chosen_BxL):
    windows, future = map(sizes.by_target, (readings_BxLxW, future_BxLxH))
    z, loc, scale = series.normalized(windows, model.normalize)
    loc, scale = loc[..., None], scale[..., None]
    y = (future - loc) / scale
    y -= bound.anchors(z, ~jnp.isnan(windows))
    own = unit(windows, scale)
    chosen = chosen_BxL[..., None, None]
    weighted = jnp.where(chosen, z if own is None else z * own**2, 0)
    y = jnp.where(chosen, y, 0)
    return (
      jnp.einsum('bltv,bltw->vw', weighted, z),
      jnp.einsum('bltw,blth->wh', weighted, y),
    )

  square_WxW = np.zeros((sizes.window, sizes.window))
  cross_WxH = np.zeros((sizes.window, sizes.horizon))
  for n in range(len(examples.lengths)):
    for given in _chunks(examples.read(n)):
      square, cross = jax.device_get(products(*jax.device_put(given)))
      square_WxW += square
      cross_WxH += cross
  penalty = ridge * np.trace(square_WxW) / sizes.window + np.finfo(float).tiny
  square_WxW += penalty * np.eye(sizes.window)
  return np.linalg.solve(square_WxW, cross_WxH).astype(np.float32)


def put(params: PyTree, kernel_WxH: np.ndarray) -> PyTree:
  """Returns a forecaster's parameters, or an ensemble's, with that W_direct."""
  if 'direct' in params:
    return params | {'direct': {'kernel': kernel_WxH}}
  return {name: put(own, kernel_WxH) for name, own in params.items()}


def _chunks(steps: rows_lib.Steps):
  """Yields arguments of `products`: steps whose whole horizon is observed."""
  whole = (steps.weights_L > 0) & ~np.isnan(steps.future_LxH).any(1)
  chosen = np.flatnonzero(whole)
  for first in range(0, len(chosen), AT_ONCE):
    own = chosen[first : first + AT_ONCE]
    pad = (0, AT_ONCE - len(own)), (0, 0)
    yield (
      np.pad(steps.readings_LxW[own], pad)[None],
      np.pad(steps.future_LxH[own], pad)[None],
      (np.arange(AT_ONCE) < len(own))[None],
    )
