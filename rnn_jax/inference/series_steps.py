"""Rows of series: what a step of the model makes of B rows at once.

    blank   rows of which nothing was read
    read    readings into rows, step by step, and the forecast after each

A step adds a row's numbers in an order that doesn't depend on the number of
rows (ops/fixed_order), so that a series has the same bits by itself and among
hundreds.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.models import series as series_lib
from rnn_jax.ops import fixed_order

AT_ONCE = 64  # N of a program that reads several readings
PyTree = Any


class Carry(NamedTuple):
  """What series carry from reading to reading.

  Attributes:
    window_BxTxW: the last W readings of each target, scaled; NaN is missing.
    state: of the model, with an array for each layer, so that all arrays have
      the rows first, and no step copies a layer's part out of all, and back.
    x_BxD: the head's input after the last reading.
  """

  window_BxTxW: Any
  state: PyTree
  x_BxD: Any


class Covariates(NamedTuple):
  """What B rows know besides readings, see data/series/covariates.py.

  Attributes:
    known_BxHxK: of the readings after the last one.
    inputs_NxBxC: of each reading.
    categories_BxS: of the series.
  """

  known_BxHxK: Any
  inputs_NxBxC: Any
  categories_BxS: Any


class Given(NamedTuple):
  """Readings of B rows, the first `count_B` of N.

  Attributes:
    readings_NxBxT: scaled; NaN is missing.
    calendar_NxBxF: the calendar of the reading after each.
    count_B: how many are read; 0: the row stays as it is.
    covariates: None: the model reads none.
  """

  readings_NxBxT: Any
  calendar_NxBxF: Any
  count_B: Any
  covariates: Covariates | None = None


class Result(NamedTuple):
  """Of each row the head's numbers, in units of `scale_BxH` from `loc_BxH`."""

  numbers_BxOxH: Any
  loc_BxH: Any
  scale_BxH: Any


def blank(model: series_lib.Forecaster, B: int) -> Carry:
  """Returns B rows of which nothing was read."""
  return Carry(
    jnp.full((B, model.sizes.targets, model.sizes.window), jnp.nan),
    _by_layer(model, model.apply({}, B, method='init_state')),
    jnp.zeros((B, model.features_width)),
  )


def _by_layer(model, state):
  """Returns the model's own state with an array for each layer."""
  return jax.tree.map(
    lambda axis, x: tuple(x) if axis else x, _row_axes(model), state
  )


def _of_layers(model, state):
  """Returns what `_by_layer` was given."""
  return jax.tree.map(
    lambda axis, x: jnp.stack(x) if axis else x, _row_axes(model), state
  )


def _row_axes(model):
  """Returns the axis of the rows of each array of the model's own state.

  It is 1 where the layers come first, otherwise 0.
  """
  return jax.tree.map(
    lambda names: names.split('x').index('B'), model.bind({}).state_axes()
  )


def nothing(model: series_lib.Forecaster, N: int, B: int) -> Given:
  """Returns N readings of B rows that read none of them, on the host."""
  sizes, steps = model.sizes, (N, B)
  given = Given(
    np.zeros((*steps, sizes.targets), np.float32),
    np.zeros((*steps, sizes.calendar), np.float32),
    np.zeros(B, np.int32),
  )
  if not model.reads_covariates:
    return given
  return given._replace(
    covariates=Covariates(
      np.zeros((B, sizes.horizon, sizes.known), np.float32),
      np.zeros((*steps, sizes.inputs), np.float32),
      np.zeros((B, len(sizes.categories)), np.int32),
    )
  )


def read(
  model: series_lib.Forecaster, params: PyTree, carry: Carry, given: Given
) -> tuple[Carry, Result]:
  """Reads each row's readings, step by step.

  Args:
    model: the forecaster.
    params: its parameters.
    carry: of B rows.
    given: their readings; if N is 1 each row reads its one.

  Returns:
    (carry, the forecasts after the last reading of each row).
  """
  if len(given.readings_NxBxT) == 1:
    carry = _next(model, params, carry, given, 0)
  else:
    carry = jax.lax.fori_loop(
      0,
      jnp.max(given.count_B),
      lambda n, carry: step(model, params, carry, given, n),
      carry,
    )
  return carry, ahead(model, params, carry, given)


def step(
  model: series_lib.Forecaster,
  params: PyTree,
  carry: Carry,
  given: Given,
  n: jax.Array,
) -> Carry:
  """Reads the n-th reading of each row that has one; arguments as of `read`."""
  live_B = n < given.count_B
  return jax.tree.map(
    lambda new, old: jnp.where(_along_rows(live_B, new.ndim), new, old),
    _next(model, params, carry, given, n),
    carry,
  )


def _next(model, params, carry, given, n):
  """Reads the n-th reading of each row."""
  model = _unrolled(model)
  reading_BxTx1 = given.readings_NxBxT[n][..., None]
  last_BxTxW = carry.window_BxTxW[..., 1:]
  window_BxTxW = jnp.concatenate([last_BxTxW, reading_BxTx1], 2)
  calendar_Bx1xF = given.calendar_NxBxF[n][:, None]
  inputs = _seen(window_BxTxW), calendar_Bx1xF, None, _inputs(given, n)
  state = _of_layers(model, carry.state)
  state, x_Bx1xD = _apply(model, params, 'features', state, *inputs)
  x_BxD = x_Bx1xD[:, 0].astype(jnp.float32)
  return Carry(window_BxTxW, _by_layer(model, state), x_BxD)


def _unrolled(model):
  """Returns a model without a loop over its layers."""
  config = dataclasses.replace(model.config, unroll=model.config.layers)
  return model.clone(config=config)


def ahead(
  model: series_lib.Forecaster, params: PyTree, carry: Carry, given: Given
) -> Result:
  """Returns the forecasts after the last reading of each row."""
  known = None
  if given.covariates is not None:
    known_Bx1xHxK = given.covariates.known_BxHxK[:, None]
    known = series_lib.Covariates(known_Bx1xHxK, None, None)
  inputs = carry.x_BxD[:, None], _seen(carry.window_BxTxW), known
  made = _apply(model, params, 'forecasts', *inputs)
  numbers_BxOxH = jnp.stack([each[:, 0] for each in made.numbers], 1)
  return Result(numbers_BxOxH, made.loc_BxLxH[:, 0], made.scale_BxLxH[:, 0])


def _seen(window_BxTxW):
  """Returns what one step sees."""
  return window_BxTxW.reshape(len(window_BxTxW), 1, -1)


def _apply(model, params, method, *inputs):
  run = functools.partial(model.apply, {'params': params}, method=method)
  rows = len(jax.tree.leaves(inputs)[-1])
  return fixed_order.evaluate(run, *inputs, rows=rows)


def _inputs(given, n):
  """Returns the covariates of the n-th readings, B rows of one step."""
  if given.covariates is None:
    return None
  _, inputs_NxBxC, categories_BxS = given.covariates
  return series_lib.Covariates(
    None, inputs_NxBxC[n][:, None], categories_BxS[:, None]
  )


def _along_rows(x_B, ndim):
  return x_B.reshape(-1, *[1] * (ndim - 1))
