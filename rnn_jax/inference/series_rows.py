"""Rows of series that are read together: B rows, each up to N readings a call.

    blank   rows of which nothing was read
    read    readings into rows, step by step, and the forecast after each

A step adds a row's numbers in an order that doesn't depend on the number of
rows (ops/fixed_order), so that a series has the same bits by itself and
among hundreds. `Reader` has a program for each of a few widths, of one reading
and of several. Before it uses one, it compares its rows with those of the next
narrower width, and of several readings: where XLA's own kernels add in another
order, as on a GPU, it isn't used.
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


class Rows(NamedTuple):
  """What B rows read: the M readings of all, one row's after another's.

  Attributes:
    readings_MxT: scaled; NaN is missing.
    calendar_MxF: the calendar of the reading after each.
    count_B: how many readings each row has.
    known_BxHxK: as of Covariates; empty if the model reads none.
    inputs_MxC: the same.
    categories_BxS: the same.
  """

  readings_MxT: np.ndarray
  calendar_MxF: np.ndarray
  count_B: np.ndarray
  known_BxHxK: np.ndarray = NOTHING
  inputs_MxC: np.ndarray = NOTHING
  categories_BxS: np.ndarray = NOTHING


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


class Part(NamedTuple):
  """What some rows have become: their numbers, and a row for each, or more."""

  order: np.ndarray
  carry: Carry


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
    lambda axis, new, old: jnp.where(_along(live_B, axis, new.ndim), new, old),
    axes(model),
    _next(model, params, carry, given, n),
    carry,
  )


def _next(model, params, carry, given, n):
  """Reads the n-th reading of each row."""
  reading_BxTx1 = given.readings_NxBxT[n][..., None]
  last_BxTxW = carry.window_BxTxW[..., 1:]
  window_BxTxW = jnp.concatenate([last_BxTxW, reading_BxTx1], 2)
  calendar_Bx1xF = given.calendar_NxBxF[n][:, None]
  inputs = _seen(window_BxTxW), calendar_Bx1xF, None, _inputs(given, n)
  state, x_Bx1xD = _apply(model, params, 'features', carry.state, *inputs)
  return Carry(window_BxTxW, state, x_Bx1xD[:, 0].astype(jnp.float32))


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


_blank = jax.jit(blank, static_argnums=(0, 1))


@functools.lru_cache
def _program(model):
  """Returns `read` of a model, compiled; its hash takes long for each call."""
  return jax.jit(functools.partial(read, model))


class Reader:
  """A forecaster's programs; rows are NumPy arrays on the host.

  Args:
    model: the forecaster.
    params: its parameters on a device.
  """

  def __init__(self, model: series_lib.Forecaster, params: PyTree) -> None:
    self.model, self.params = model, params
    self._axes = axes(model)
    self._read = _program(model)
    self._agree: dict[int, bool] = {WIDTHS[0]: True}

  @functools.cached_property
  def fresh(self) -> Carry:
    """A row of which nothing was read."""
    return jax.device_get(_blank(self.model, 1))

  def read(
    self,
    carry: Carry,
    rows: Rows,
    at_B: np.ndarray | None = None,
    meanwhile: Callable[[], None] = lambda: None,
  ) -> tuple[list[Part], Result]:
    """Reads each row's readings to their end.

    Args:
      carry: of rows, which stays as it is.
      rows: what B of them read, any number of readings each.
      at_B: which rows these are; None: all, in order.
      meanwhile: called while the device reads.

    Returns:
      (what the B rows have become, the forecasts after their last readings).
    """
    # All are started before the first is waited for.
    ended = [
      chunk
      for chunk in self.chunks(self._start, carry, rows, at_B)
      if chunk.ends
    ]
    meanwhile()
    shapes = [(len(rows.count_B), *x.shape[1:]) for x in ended[0].result]
    result = Result(*(np.empty(shape, np.float32) for shape in shapes))
    parts = []
    for chunk in ended:
      own, made = _on_host((chunk.carry, chunk.result))
      parts.append(Part(chunk.order, own))
      for x, part in zip(result, made, strict=True):
        x[chunk.order] = part[: len(chunk.order)]
    return parts, result

  def chunks(
    self,
    program: Program,
    carry: Carry,
    rows: Rows,
    at_B: np.ndarray | None = None,
  ) -> Iterator[Chunk]:
    """Yields what a program makes of rows, AT_ONCE readings of some at a time.

    Args:
      program: reads them.
      carry: of rows, which stays as it is.
      rows: what B of them read, any number of readings each.
      at_B: which rows these are; None: all, in order.
    """
    # Rows of about the same length wait for each other the least.
    whole = np.argsort(-rows.count_B, kind='stable')
    at_B = np.arange(len(whole)) if at_B is None else at_B
    for first, width in self.parts(len(whole)):
      order = whole[first : first + width]
      # Padding is some of these rows again, which read nothing.
      part = self.take(carry, at_B[np.resize(order, width)])
      longest = max(1, int(rows.count_B[order[0]]))
      for place in range(0, longest, AT_ONCE):
        given = self.part(rows, order, place, width)
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
    """Puts the first rows of `new` into the place of some rows."""
    first = slice(len(rows))

    def put(axis, x, own):
      before = (slice(None),) * axis
      x[(*before, rows)] = own[(*before, first)]

    jax.tree.map(put, self._axes, carry, new)

  def put_parts(
    self, carry: Carry, at_B: np.ndarray, parts: Sequence[Part]
  ) -> None:
    """Puts what B rows have become into the place of some rows."""
    for part in parts:
      self.put(carry, at_B[part.order], part.carry)

  def row(self, parts: Sequence[Part], n: int) -> Carry:
    """Returns what row `n` has become, a copy."""
    for part in parts:
      if len(at := np.flatnonzero(part.order == n)):
        return self.take(part.carry, at)
    raise IndexError(f'n={n}')

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

  def _start(self, order, place, carry, given):
    del order, place
    return self._run(carry, given)

  def _run(self, carry, given):
    # Of arrays on the host, which jit moves in less time than device_put.
    with jax.transfer_guard_host_to_device('allow'):
      return self._read(self.params, carry, given)

  def part(
    self, rows: Rows, order: np.ndarray, place: int, width: int
  ) -> Given:
    """Returns some readings of some rows, of `width` rows.

    Args:
      rows: of which these are some.
      order: the numbers of these rows.
      place: of the first reading of each.
      width: at least as many; what comes after these rows reads nothing.
    """
    own_B = np.clip(rows.count_B[order] - place, 0, AT_ONCE)
    N = 1 if (own_B == 1).all() and self._reads_one else AT_ONCE
    given = self._blank_given(width, N)
    given.count_B[: len(order)] = own_B
    # Of each reading its row here, its step, and its place in `rows`.
    row_M = np.repeat(np.arange(len(order)), own_B)
    step_M = np.arange(len(row_M)) - (np.cumsum(own_B) - own_B)[row_M]
    first_B = np.cumsum(rows.count_B) - rows.count_B
    at_M = first_B[order][row_M] + place + step_M
    given.readings_NxBxT[step_M, row_M] = rows.readings_MxT[at_M]
    given.calendar_NxBxF[step_M, row_M] = rows.calendar_MxF[at_M]
    if given.covariates is not None:
      known_BxHxK, inputs_NxBxC, categories_BxS = given.covariates
      known_BxHxK[: len(order)] = rows.known_BxHxK[order]
      inputs_NxBxC[step_M, row_M] = rows.inputs_MxC[at_M]
      categories_BxS[: len(order)] = rows.categories_BxS[order]
    return given

  def _blank_given(self, width, N):
    """Returns rows that read nothing."""
    sizes, steps = self.model.sizes, (N, width)
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

  @functools.cached_property
  def _reads_one(self):
    """Whether a program of one reading has the bits of that of several."""
    given = self._samples(1)
    return self._together(given) == self._one_by_one(given)

  def _compare(self, narrow, wide):
    """Returns whether rows have the same bits at two widths."""
    given = self._samples(wide)
    made = self._together(given)
    if self._reads_one and self._one_by_one(given) != made:
      return False
    firsts = range(0, wide, narrow)
    parts = (self._together(_some(given, n, n + narrow)) for n in firsts)
    return made == [row for part in parts for row in part]

  def _samples(self, width):
    """Returns COMPARED drawn readings of so many rows."""
    rng = np.random.default_rng(0)

    def sample(like):
      if like.dtype == np.int32:
        return like
      return rng.normal(size=like.shape).astype(np.float32)

    given = jax.tree.map(sample, self._blank_given(width, AT_ONCE))
    return given._replace(count_B=np.full(width, COMPARED, np.int32))

  def _together(self, given):
    """Returns the bits of each row that reads its readings in a call."""
    return self._bits(*self._run(self._fresh_rows(given), given))

  def _one_by_one(self, given):
    """Returns them of rows that read one reading in each call."""
    carry, result = self._fresh_rows(given), None
    for n in range(COMPARED):
      carry, result = self._run(carry, _one(given, n))
    return self._bits(carry, result)

  def _fresh_rows(self, given):
    return self.take(self.fresh, np.zeros(len(given.count_B), int))

  def _bits(self, carry, result):
    carry, result = jax.device_get((carry, result))
    leaves = [*jax.tree.leaves(self._first(carry)), *result]
    return [[x[n].tobytes() for x in leaves] for n in range(len(leaves[0]))]


def _on_host(tree):
  """Returns arrays of NumPy; jax.device_get takes longer on a CPU."""
  with jax.transfer_guard_device_to_host('allow'):
    return jax.tree.map(np.asarray, tree)


def _some(given, start, stop):
  """Returns the rows from one to before another."""
  own = slice(start, stop)
  readings_NxBxT, calendar_NxBxF, count_B, covariates = given
  if covariates is not None:
    known_BxHxK, inputs_NxBxC, categories_BxS = covariates
    covariates = Covariates(
      known_BxHxK[own], inputs_NxBxC[:, own], categories_BxS[own]
    )
  return Given(
    readings_NxBxT[:, own], calendar_NxBxF[:, own], count_B[own], covariates
  )


def _one(given, n):
  """Returns the n-th reading of each row."""
  own = slice(n, n + 1)
  covariates = given.covariates
  if covariates is not None:
    inputs_NxBxC = covariates.inputs_NxBxC[own]
    covariates = covariates._replace(inputs_NxBxC=inputs_NxBxC)
  return Given(
    given.readings_NxBxT[own],
    given.calendar_NxBxF[own],
    np.ones_like(given.count_B),
    covariates,
  )
