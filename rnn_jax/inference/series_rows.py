"""Rows of series that are read together: B rows, each up to N readings a call.

    blank   rows of which nothing was read
    read    readings into rows, step by step, and the forecast after each

A step adds a row's numbers in an order that doesn't depend on the number of
rows (models/fixed_order.py), so that a series has the same bits by itself and
among hundreds. `Reader` has a program for each of a few widths. Before it uses
one, it compares its rows with those of the next narrower width: where XLA's own
kernels add in another order, as on a GPU, that width isn't used.
"""

import functools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.models import fixed_order
from rnn_jax.models import series as series_lib

AT_ONCE = 64  # N
WIDTHS = 1, 16, 256  # B
COMPARED = 3  # readings of each row that `Reader` compares
PyTree = Any


class Carry(NamedTuple):
  """What series carry from reading to reading.

  Attributes:
    window_BxW: the last W readings, scaled; NaN is missing.
    state: of the model.
    x_BxD: the head's input after the last reading.
  """

  window_BxW: Any
  state: PyTree
  x_BxD: Any


class Given(NamedTuple):
  """Readings of B rows, the first `count_B` of N.

  Attributes:
    readings_NxB: scaled; NaN is missing.
    calendar_NxBxF: the calendar of the reading after each.
    count_B: how many are read; 0: the row stays as it is.
  """

  readings_NxB: Any
  calendar_NxBxF: Any
  count_B: Any


class Result(NamedTuple):
  """Of each row the head's numbers, in units of `scale_B` from `loc_B`."""

  numbers_BxOxH: Any
  loc_B: Any
  scale_B: Any


def blank(model: series_lib.Forecaster, B: int) -> Carry:
  """Returns B rows of which nothing was read."""
  return Carry(
    jnp.full((B, model.sizes.window), jnp.nan),
    model.apply({}, B, method='init_state'),
    jnp.zeros((B, model.config.width)),
  )


def axes(model: series_lib.Forecaster) -> Carry:
  """Returns the axis of the rows of each array of a Carry."""
  state = jax.tree.map(
    lambda names: names.split('x').index('B'), model.bind({}).state_axes()
  )
  return Carry(0, state, 0)


def read(
  model: series_lib.Forecaster, params: PyTree, carry: Carry, given: Given
) -> tuple[Carry, Result]:
  """Reads each row's readings, step by step.

  Args:
    model: the forecaster.
    params: its parameters.
    carry: of B rows.
    given: their readings.

  Returns:
    (carry, the forecasts after the last reading of each row).
  """
  axis = axes(model)
  run = functools.partial(_apply, model, params)

  def advance(n, old):
    reading_Bx1 = given.readings_NxB[n][:, None]
    window_BxW = jnp.concatenate([old.window_BxW[:, 1:], reading_Bx1], 1)
    calendar_Bx1xF = given.calendar_NxBxF[n][:, None]
    state, x_Bx1xD = run(
      'features', old.state, window_BxW[:, None], calendar_Bx1xF
    )
    x_BxD = x_Bx1xD[:, 0].astype(jnp.float32)
    live_B = n < given.count_B
    return jax.tree.map(
      lambda n, new, old: jnp.where(_along(live_B, n, new.ndim), new, old),
      axis,
      Carry(window_BxW, state, x_BxD),
      old,
    )

  carry = jax.lax.fori_loop(0, jnp.max(given.count_B), advance, carry)
  made = run('forecasts', carry.x_BxD[:, None], carry.window_BxW[:, None])
  numbers_BxOxH = jnp.stack([each[:, 0] for each in made.numbers], 1)
  return carry, Result(numbers_BxOxH, made.loc_BxL[:, 0], made.scale_BxL[:, 0])


def _apply(model, params, method, *inputs):
  run = functools.partial(model.apply, method=method)
  return fixed_order.evaluate(run, {'params': params}, *inputs)


def _along(x_B, axis, ndim):
  return x_B.reshape([-1 if n == axis else 1 for n in range(ndim)])


_read = jax.jit(read, static_argnums=0)
_blank = jax.jit(blank, static_argnums=(0, 1))


class Reader:
  """A forecaster's programs; rows are NumPy arrays on the host.

  Args:
    model: the forecaster.
    params: its parameters on a device.
  """

  def __init__(self, model: series_lib.Forecaster, params: PyTree) -> None:
    self.model, self.params = model, params
    self._axes = axes(model)
    self._agree: dict[int, bool] = {WIDTHS[0]: True}

  @functools.cached_property
  def fresh(self) -> Carry:
    """A row of which nothing was read."""
    return jax.device_get(_blank(self.model, 1))

  def read(
    self,
    carry: Carry,
    readings: Sequence[np.ndarray],
    calendars: Sequence[np.ndarray],
  ) -> tuple[Carry, Result]:
    """Reads each row's readings to their end.

    Args:
      carry: of B rows, which stays as it is.
      readings: of each row any number, scaled; NaN is missing.
      calendars: NxF of each row, of the reading after each.

    Returns:
      (the new carry, the forecasts after the last readings).
    """
    lengths = np.array([len(x) for x in readings])
    # Rows of about the same length wait for each other the least.
    order = np.argsort(-lengths, kind='stable')
    carries, results = [], []
    for first, width in self.parts(len(order)):
      own = order[first : first + width]
      part = self._read_part(
        width,
        self.take(carry, own),
        [readings[n] for n in own],
        [calendars[n] for n in own],
      )
      carries.append(self.take(part[0], np.arange(len(own))))
      results.append(Result(*(x[: len(own)] for x in part[1])))
    back = np.argsort(order)
    parts = zip(*results, strict=True)
    result = Result(*(np.concatenate(each)[back] for each in parts))
    return self.take(self.join(carries), back), result

  def parts(self, count: int) -> Iterator[tuple[int, int]]:
    """Yields (first row, width) of the calls that read `count` rows.

    At most half of a call's rows are padding.
    """
    first = 0
    while first < count:
      width = self._widest(2 * (count - first))
      yield first, width
      first += width

  def join(self, carries: Sequence[Carry]) -> Carry:
    """Returns the rows of all."""
    return jax.tree.map(
      lambda axis, *rows: np.concatenate(rows, axis), self._axes, *carries
    )

  def take(self, carry: Carry, rows: np.ndarray) -> Carry:
    """Returns some rows, a copy."""
    return jax.tree.map(
      lambda axis, x: np.take(x, rows, axis), self._axes, carry
    )

  def put(self, carry: Carry, rows: np.ndarray, new: Carry) -> None:
    """Puts `new` into the place of some rows."""

    pairs = map(jax.tree.leaves, (self._first(carry), self._first(new)))
    for x, own in zip(*pairs, strict=True):
      x[rows] = own

  def _first(self, carry):
    """Returns views of arrays whose first axis is that of the rows."""
    return jax.tree.map(
      lambda axis, x: np.moveaxis(x, axis, 0), self._axes, carry
    )

  def _widest(self, most):
    """Returns the widest usable width up to `most`, at least 1."""
    usable = 1
    for width in WIDTHS:
      if width > most:
        break
      if width not in self._agree:
        self._agree[width] = self._compare(usable, width)
      if self._agree[width]:
        usable = width
    return usable

  def _read_part(self, width, carry, readings, calendars):
    padding = width - len(readings)
    carry = self.join([carry] + [self.fresh] * padding)
    lengths_B = np.array([len(x) for x in readings] + [0] * padding)
    features = calendars[0].shape[1]
    result = None
    for first in range(0, max(1, lengths_B.max()), AT_ONCE):
      own = slice(first, first + AT_ONCE)
      readings_NxB = np.zeros((AT_ONCE, width), np.float32)
      calendar_NxBxF = np.zeros((AT_ONCE, width, features), np.float32)
      for row, (values_N, calendar_NxF) in enumerate(
        zip(readings, calendars, strict=True)
      ):
        part_N = values_N[own]
        readings_NxB[: len(part_N), row] = part_N
        calendar_NxBxF[: len(part_N), row] = calendar_NxF[own]
      count_B = np.clip(lengths_B - first, 0, AT_ONCE).astype(np.int32)
      given = Given(readings_NxB, calendar_NxBxF, count_B)
      carry, result = self._run(carry, given)
    return jax.device_get((carry, result))

  def _run(self, carry, given):
    device = jax.tree.leaves(self.params)[0].device
    carry, given = jax.device_put((carry, given), device)
    return _read(self.model, self.params, carry, given)

  def _compare(self, narrow, wide):
    """Returns whether rows have the same bits at two widths."""
    rng = np.random.default_rng(0)
    shape = AT_ONCE, wide, self.model.sizes.calendar
    readings_NxB, calendar_NxBxF = (
      rng.normal(size=size).astype(np.float32) for size in (shape[:2], shape)
    )

    def rows(first, width):
      own = slice(first, first + width)
      count_B = np.full(width, COMPARED, np.int32)
      given = Given(readings_NxB[:, own], calendar_NxBxF[:, own], count_B)
      made = self._run(self.join([self.fresh] * width), given)
      carry, result = jax.device_get(made)
      leaves = [*jax.tree.leaves(self._first(carry)), *result]
      return [[x[n].tobytes() for x in leaves] for n in range(width)]

    parts = (rows(first, narrow) for first in range(0, wide, narrow))
    return rows(0, wide) == [row for part in parts for row in part]
