"""Rows of series that are read together: B rows, each up to N readings a call.

    blank   rows of which nothing was read
    read    readings into rows, step by step, and the forecast after each

A step adds a row's numbers in an order that doesn't depend on the number of
rows (ops/fixed_order), so that a series has the same bits by itself and
among hundreds. `Reader` has a program for each of a few widths. Before it uses
one, it compares its rows with those of the next narrower width: where XLA's own
kernels add in another order, as on a GPU, that width isn't used.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.models import series as series_lib
from rnn_jax.ops import fixed_order

AT_ONCE = 64  # N
WIDTHS = 1, 16, 256  # B
COMPARED = 3  # readings of each row that `Reader` compares
NOTHING = np.zeros((0, 0), np.float32)
PyTree = Any


class Carry(NamedTuple):
  """What series carry from reading to reading.

  Attributes:
    window_BxTxW: the last W readings of each target, scaled; NaN is missing.
    state: of the model.
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


class Row(NamedTuple):
  """What a row reads, N readings.

  Attributes:
    readings_NxT: scaled; NaN is missing.
    calendar_NxF: the calendar of the reading after each.
    known_HxK: as of Covariates; empty if the model reads none.
    inputs_NxC: the same.
    categories_S: the same.
  """

  readings_NxT: np.ndarray
  calendar_NxF: np.ndarray
  known_HxK: np.ndarray = NOTHING
  inputs_NxC: np.ndarray = NOTHING
  categories_S: np.ndarray = np.zeros(0, np.int32)


class Result(NamedTuple):
  """Of each row the head's numbers, in units of `scale_BxH` from `loc_BxH`."""

  numbers_BxOxH: Any
  loc_BxH: Any
  scale_BxH: Any


class Chunk(NamedTuple):
  """What a program made of the next readings of some rows.

  Attributes:
    order: the numbers of the rows.
    place: of the first reading.
    ends: whether all of these rows' readings are read.
    carry: of the rows and of padding after them, on the device.
    result: of the program, the same.
  """

  order: np.ndarray
  place: int
  ends: bool
  carry: Carry
  result: Any


# Of the rows' numbers and the place of their first reading.
Program = Callable[[np.ndarray, int, Carry, Given], tuple[Carry, Any]]


def blank(model: series_lib.Forecaster, B: int) -> Carry:
  """Returns B rows of which nothing was read."""
  return Carry(
    jnp.full((B, model.sizes.targets, model.sizes.window), jnp.nan),
    model.apply({}, B, method='init_state'),
    jnp.zeros((B, model.features_width)),
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

  def advance(n, carry):
    return step(model, params, carry, given, n)

  carry = jax.lax.fori_loop(0, jnp.max(given.count_B), advance, carry)
  return carry, ahead(model, params, carry, given)


def step(
  model: series_lib.Forecaster,
  params: PyTree,
  carry: Carry,
  given: Given,
  n: jax.Array,
) -> Carry:
  """Reads the n-th reading of each row; arguments as of `read`."""
  reading_BxTx1 = given.readings_NxBxT[n][..., None]
  last_BxTxW = carry.window_BxTxW[..., 1:]
  window_BxTxW = jnp.concatenate([last_BxTxW, reading_BxTx1], 2)
  calendar_Bx1xF = given.calendar_NxBxF[n][:, None]
  inputs = _seen(window_BxTxW), calendar_Bx1xF, None, _inputs(given, n)
  state, x_Bx1xD = _apply(model, params, 'features', carry.state, *inputs)
  x_BxD = x_Bx1xD[:, 0].astype(jnp.float32)
  live_B = n < given.count_B
  return jax.tree.map(
    lambda axis, new, old: jnp.where(_along(live_B, axis, new.ndim), new, old),
    axes(model),
    Carry(window_BxTxW, state, x_BxD),
    carry,
  )


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
    rows: Sequence[Row],
  ) -> tuple[Carry, Result]:
    """Reads each row's readings to their end.

    Args:
      carry: of B rows, which stays as it is.
      rows: what each reads, any number of readings.

    Returns:
      (the new carry, the forecasts after the last readings).
    """
    orders, carries, results = [], [], []
    for chunk in self.chunks(self._program, carry, rows):
      if chunk.ends:
        made = jax.device_get((chunk.carry, chunk.result))
        count = len(chunk.order)
        orders.append(chunk.order)
        carries.append(self.take(made[0], np.arange(count)))
        results.append([x[:count] for x in made[1]])
    back = np.argsort(np.concatenate(orders))
    parts = zip(*results, strict=True)
    result = Result(*(np.concatenate(each)[back] for each in parts))
    return self.take(self.join(carries), back), result

  def chunks(
    self, program: Program, carry: Carry, rows: Sequence[Row]
  ) -> Iterator[Chunk]:
    """Yields what a program makes of rows, AT_ONCE readings of some at a time.

    Args:
      program: reads them.
      carry: of B rows, which stays as it is.
      rows: what each reads, any number of readings.
    """
    lengths = np.array([len(row.readings_NxT) for row in rows])
    # Rows of about the same length wait for each other the least.
    whole = np.argsort(-lengths, kind='stable')
    for first, width in self.parts(len(whole)):
      order = whole[first : first + width]
      padding = [self.fresh] * (width - len(order))
      part = self.join([self.take(carry, order), *padding])
      longest = max(1, lengths[order[0]])
      for place in range(0, longest, AT_ONCE):
        own = slice(place, place + AT_ONCE)
        given = self.part([rows[n] for n in order], own, width)
        part, result = program(order, place, part, given)
        yield Chunk(order, place, place + AT_ONCE >= longest, part, result)

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

  def _program(self, order, place, carry, given):
    del order, place
    return self._run(carry, given)

  def _run(self, carry, given):
    device = jax.tree.leaves(self.params)[0].device
    carry, given = jax.device_put((carry, given), device)
    return _read(self.model, self.params, carry, given)

  def part(self, rows: Sequence[Row], own: slice, width: int = 1) -> Given:
    """Returns some readings of rows, at most AT_ONCE, of `width` rows."""
    given = self._blank_given(width)
    for n, row in enumerate(rows):
      _write(given, n, row, own)
    return given

  def _blank_given(self, width):
    """Returns rows that read nothing."""
    sizes, steps = self.model.sizes, (AT_ONCE, width)
    given = Given(
      np.zeros((*steps, sizes.targets), np.float32),
      np.zeros((*steps, sizes.calendar), np.float32),
      np.zeros(width, np.int32),
    )
    if not self.model.reads_covariates:
      return given
    return given._replace(
      covariates=Covariates(
        np.zeros((width, sizes.horizon, sizes.known), np.float32),
        np.zeros((*steps, sizes.inputs), np.float32),
        np.zeros((width, len(sizes.categories)), np.int32),
      )
    )

  def _compare(self, narrow, wide):
    """Returns whether rows have the same bits at two widths."""
    rng = np.random.default_rng(0)

    def sample(like):
      if like.dtype == np.int32:
        return like
      return rng.normal(size=like.shape).astype(np.float32)

    samples = [
      Row(*map(sample, _row(self._blank_given(1), 0))) for _ in range(wide)
    ]

    def rows(first, width):
      given = self.part(samples[first : first + width], slice(COMPARED), width)
      made = self._run(self.join([self.fresh] * width), given)
      carry, result = jax.device_get(made)
      leaves = [*jax.tree.leaves(self._first(carry)), *result]
      return [[x[n].tobytes() for x in leaves] for n in range(width)]

    parts = (rows(first, narrow) for first in range(0, wide, narrow))
    return rows(0, wide) == [row for part in parts for row in part]


def _row(given, n):
  """Returns views of the arrays of row `n`, those of a Row."""
  readings_NxBxT, calendar_NxBxF, _, covariates = given
  views = [readings_NxBxT[:, n], calendar_NxBxF[:, n]]
  if covariates is not None:
    known_BxHxK, inputs_NxBxC, categories_BxS = covariates
    views += [known_BxHxK[n], inputs_NxBxC[:, n], categories_BxS[n]]
  return views


def _write(given, n, row, own):
  """Writes the readings `own` of a row into row `n`."""
  readings_NxT, calendar_NxF, *covariates = _row(given, n)
  part_NxT = row.readings_NxT[own]
  count = given.count_B[n] = len(part_NxT)
  readings_NxT[:count] = part_NxT
  calendar_NxF[:count] = row.calendar_NxF[own]
  if covariates:
    known_HxK, inputs_NxC, categories_S = covariates
    known_HxK[:] = row.known_HxK
    inputs_NxC[:count] = row.inputs_NxC[own]
    categories_S[:] = row.categories_S
