"""Rows of series on the host, which read any number of readings together.

`Reader` has a program for each of a few widths (series_widths.py), of one
reading and of several. What rows read is cut into calls of AT_ONCE readings;
rows of about the same length share a call.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax.inference import series_steps
from rnn_jax.inference import series_widths
from rnn_jax.models import series as series_lib

NOTHING = np.zeros((0, 0), np.float32)
PyTree = Any


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


class Chunk(NamedTuple):
  """What a program made of the next readings of some rows.

  Attributes:
    order: the numbers of the rows.
    place: of the first reading.
    ends: whether all of these rows' readings are read.
    carry: of the rows and of padding after them, on the device; a program that
      donates it, as `read`'s does, leaves that of the last chunk only.
    result: of the program, the same.
  """

  order: np.ndarray
  place: int
  ends: bool
  carry: series_steps.Carry
  result: Any


class Part(NamedTuple):
  """What some rows have become: their numbers, and a row for each, or more."""

  order: np.ndarray
  carry: series_steps.Carry


# Of the rows' numbers and the place of their first reading.
Program = Callable[
  [np.ndarray, int, series_steps.Carry, series_steps.Given],
  tuple[series_steps.Carry, Any],
]


class Reader:
  """A forecaster's programs; rows are NumPy arrays on the host.

  Args:
    model: the forecaster.
    params: its parameters on a device.
  """

  def __init__(self, model: series_lib.Forecaster, params: PyTree) -> None:
    self.model, self.params = model, params
    self._read = _program(model)
    self.widths = series_widths.Widths(model, self._run, self._fresh_rows)

  @functools.cached_property
  def fresh(self) -> series_steps.Carry:
    """A row of which nothing was read."""
    return jax.device_get(_blank(self.model, 1))

  def read(
    self,
    carry: series_steps.Carry,
    rows: Rows,
    at_B: np.ndarray | None = None,
    meanwhile: Callable[[], None] = lambda: None,
  ) -> tuple[list[Part], series_steps.Result]:
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
    result = series_steps.Result(
      *(np.empty(shape, np.float32) for shape in shapes)
    )
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
    carry: series_steps.Carry,
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
      for place in range(0, longest, series_steps.AT_ONCE):
        given = self.part(rows, order, place, width)
        part, result = program(order, place, part, given)
        ends = place + series_steps.AT_ONCE >= longest
        yield Chunk(order, place, ends, part, result)

  def parts(self, count: int) -> Iterator[tuple[int, int]]:
    """Yields (first row, width) of the calls that read `count` rows.

    At most half of a call's rows are padding.
    """
    first = 0
    while first < count:
      width = self.widths.widest(2 * (count - first))
      yield first, width
      first += width

  def join(self, carries: Sequence[series_steps.Carry]) -> series_steps.Carry:
    """Returns the rows of all."""
    return jax.tree.map(lambda *rows: np.concatenate(rows), *carries)

  def take(
    self, carry: series_steps.Carry, rows: np.ndarray
  ) -> series_steps.Carry:
    """Returns some rows, a copy."""
    return jax.tree.map(lambda x: x[rows], carry)

  def put(
    self, carry: series_steps.Carry, rows: np.ndarray, new: series_steps.Carry
  ) -> None:
    """Puts the first rows of `new` into the place of some rows."""
    for x, own in zip(*map(jax.tree.leaves, (carry, new)), strict=True):
      x[rows] = own[: len(rows)]

  def put_parts(
    self, carry: series_steps.Carry, at_B: np.ndarray, parts: Sequence[Part]
  ) -> None:
    """Puts what B rows have become into the place of some rows."""
    for part in parts:
      self.put(carry, at_B[part.order], part.carry)

  def row(self, parts: Sequence[Part], n: int) -> series_steps.Carry:
    """Returns what row `n` has become, a copy."""
    for part in parts:
      if len(at := np.flatnonzero(part.order == n)):
        return self.take(part.carry, at)
    raise IndexError(f'n={n}')

  def _fresh_rows(self, count):
    return self.take(self.fresh, np.zeros(count, int))

  def _start(self, order, place, carry, given):
    del order, place
    return self._run(carry, given)

  def _run(self, carry, given):
    # Of arrays on the host, which jit moves in less time than device_put.
    with jax.transfer_guard_host_to_device('allow'):
      return self._read(self.params, carry, given)

  def part(
    self, rows: Rows, order: np.ndarray, place: int, width: int
  ) -> series_steps.Given:
    """Returns some readings of some rows, of `width` rows.

    Args:
      rows: of which these are some.
      order: the numbers of these rows.
      place: of the first reading of each.
      width: at least as many; what comes after these rows reads nothing.
    """
    own_B = np.clip(rows.count_B[order] - place, 0, series_steps.AT_ONCE)
    single = (own_B == 1).all() and self.widths.reads_one
    N = 1 if single else series_steps.AT_ONCE
    given = series_steps.nothing(self.model, N, width)
    given.count_B[: len(order)] = own_B
    # Of each reading its row here, its step, and its place in `rows`.
    first_B = np.cumsum(rows.count_B) - rows.count_B
    row_M, step_M, at_M = slice(len(order)), 0, first_B[order] + place
    if N > 1:
      row_M = np.repeat(np.arange(len(order)), own_B)
      step_M = np.arange(len(row_M)) - (np.cumsum(own_B) - own_B)[row_M]
      at_M = at_M[row_M] + step_M
    given.readings_NxBxT[step_M, row_M] = rows.readings_MxT[at_M]
    given.calendar_NxBxF[step_M, row_M] = rows.calendar_MxF[at_M]
    if given.covariates is not None:
      known_BxHxK, inputs_NxBxC, categories_BxS = given.covariates
      known_BxHxK[: len(order)] = rows.known_BxHxK[order]
      inputs_NxBxC[step_M, row_M] = rows.inputs_MxC[at_M]
      categories_BxS[: len(order)] = rows.categories_BxS[order]
    return given


_blank = jax.jit(series_steps.blank, static_argnums=(0, 1))


@functools.lru_cache
def _program(model):
  """Returns `read` of a model, compiled; its hash takes long for each call."""
  return jax.jit(functools.partial(series_steps.read, model), donate_argnums=1)


def _on_host(tree):
  """Returns arrays of NumPy; jax.device_get takes longer on a CPU."""
  with jax.transfer_guard_device_to_host('allow'):
    return jax.tree.map(np.asarray, tree)
