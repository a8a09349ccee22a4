"""Padded, packed and reversed rows, for any cell.

A cell reads a row from its first step to its last. To be read backward, a row
is flipped. Padding then comes first, as it does where a padded row is rotated,
and a document starts after it: the state at the end of the row is that after
the last real step, whatever computes the recurrence.

    forward      a b c - -   ->   - - a b c        starts at a
    backward     a b c - -   ->   - - c b a        starts at c

A given state doesn't survive such a start: a padded row that continues one runs
step by step, and the padding keeps the state.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.cells import base

PyTree = Any
Order = Callable[[jax.Array], jax.Array]  # of the steps, BxL... to BxL...


class Rows(NamedTuple):
  """The inputs of a layer.

  Attributes:
    x: BxLxD.
    lengths: steps before the padding, B, or None.
    starts: nonzero where a document begins, BxL, or None.
  """

  x: jax.Array
  lengths: jax.Array | None = None
  starts: jax.Array | None = None

  def check(self) -> None:
    """Checks shapes and dtypes.

    Raises:
      InputError: one is wrong; the message names it and the remedy.
    """
    shape, dtype = self.x.shape, self.x.dtype
    if len(shape) != 3 or not shape[1]:
      errors.refuse('x.shape', shape, 'give BxLxD, L >= 1; `step` reads BxD')
    if not jnp.issubdtype(dtype, jnp.floating):
      errors.refuse('x.dtype', dtype.name, 'give vectors, as nn.Embed makes')
    if self.lengths is not None:
      _check('lengths', self.lengths, shape[:1])
    if self.starts is not None:
      _check('starts', self.starts, shape[:2])

  @property
  def valid(self) -> jax.Array:
    """Whether a step isn't padding, BxL."""
    B, L = self.x.shape[:2]
    if self.lengths is None:
      return jnp.ones((B, L), bool)
    return jnp.arange(L)[None] < self.lengths[:, None]

  def clear(self, y: jax.Array) -> jax.Array:
    """Returns y, BxLx_, with zeros at the padding."""
    if self.lengths is None:
      return y
    return jnp.where(self.valid[..., None], y, 0)

  def cleared(self) -> Self:
    """Returns these rows with zeros and without starts at the padding.

    What was there, even NaN, reaches no output and no gradient.
    """
    starts = self.starts
    if starts is not None and self.lengths is not None:
      starts = jnp.where(self.valid, starts, 0)
    return self._replace(x=self.clear(self.x), starts=starts)


def of(x: Any, lengths: Any = None, starts: Any = None) -> Rows:
  """Returns checked Rows; lists become arrays.

  Raises:
    InputError: shapes or dtypes that don't fit.
  """
  rows = Rows(
    _array('x', x), _array('lengths', lengths), _array('starts', starts)
  )
  rows.check()
  return rows


def last(y_BxLxF: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
  """Returns the last output of each row, BxF; 0 for a row of length 0.

  A reverse layer's last output is `y[:, 0]`.

  Args:
    y_BxLxF: outputs of a layer.
    lengths: steps before the padding, B; None: all.

  Raises:
    InputError: shapes or dtypes that don't fit.
  """
  rows = of(y_BxLxF, lengths)
  if rows.lengths is None:
    return rows.x[:, -1]
  index = jnp.maximum(rows.lengths - 1, 0)[:, None, None]
  return jnp.take_along_axis(rows.clear(rows.x), index, 1)[:, 0]


def run(
  cell: base.Cell, state: PyTree | None, rows: Rows, reverse: bool
) -> tuple[PyTree, jax.Array]:
  """Runs a cell over rows.

  Args:
    cell: a Cell.
    state: before the first step that is read; None: zeros.
    rows: the inputs.
    reverse: whether the last step is read first.

  Returns:
    (state after the last real step that is read, y_BxLxF in the order of x, 0
    at the padding).

  Raises:
    InputError: lengths, a state, and an `impl` that isn't step by step.
  """
  rows = rows.cleared()
  if rows.lengths is not None and state is not None:
    return _run_held(cell, state, rows, reverse)
  order, back = _orders(rows, reverse)
  x, starts = order(rows.x), _starts(rows, reverse)
  if starts is not None:
    starts = order(starts)
  zeros = cell.init_state(len(x))
  state, y = cell(zeros if state is None else state, x, starts)
  if rows.lengths is not None:
    state = _select(rows.lengths > 0, state, zeros)
  return state, rows.clear(back(y))


def _orders(rows, reverse) -> tuple[Order, Order]:
  """Returns functions to the order in which steps are read, and back."""
  if reverse:
    return _flip, _flip
  if rows.lengths is None:
    return _same, _same
  return _rotate(rows.lengths), _rotate(-rows.lengths)


def _same(x):
  return x


def _flip(x):
  return jnp.flip(x, 1)


def _rotate(steps_B) -> Order:
  def rotate(x):
    source = (jnp.arange(x.shape[1])[None] + steps_B[:, None]) % x.shape[1]
    source = source.reshape(*source.shape, *[1] * (x.ndim - 2))
    return jnp.take_along_axis(x, source, 1)

  return rotate


def _starts(rows, reverse):
  """Returns the starts in the order of x; a padded row has one of its own."""
  starts = rows.starts
  if starts is not None:
    starts = starts != 0
    if reverse:  # a document's last step is read first
      starts = jnp.pad(starts[:, 1:], [(0, 0), (0, 1)])
  if rows.lengths is None:
    return starts
  first_B = rows.lengths - 1 if reverse else jnp.zeros_like(rows.lengths)
  first = jnp.arange(rows.x.shape[1])[None] == first_B[:, None]
  return first if starts is None else first | starts


def _run_held(cell, state, rows, reverse):
  """Runs step by step; the padding keeps the state."""
  if cell.plan.impl not in ('auto', 'scan'):
    errors.refuse(
      'impl',
      cell.plan.impl,
      "a state and lengths together need single steps: give 'auto' or 'scan'",
    )
  order = _flip if reverse else _same
  starts = _starts(rows._replace(lengths=None), reverse)
  x, valid = order(rows.x), order(rows.valid)
  if starts is not None:
    starts = order(starts)
  inputs = (cell.project(x), valid), starts
  state, y = base.in_segments(_scan_held, cell, state, inputs)
  return state, rows.clear(order(cell.emit(y)))


def _scan_held(cell, state, inputs):
  run = nn.scan(
    _step_or_hold,
    variable_broadcast='params',
    split_rngs={'params': False},
    in_axes=1,
    out_axes=1,
    check_constancy_invariants=cell.has_rng('params'),  # see models/stack.py
  )
  return run(cell, state, inputs)


def _step_or_hold(cell, state, inputs):
  (u, valid_B), starts_B = inputs
  new, y = base.reset_and_step(cell, state, u, starts_B)
  return _select(valid_B, new, state), y


def _select(flags_B, new, old):
  """Returns the new state where a flag is set, else the old one."""

  def select(new, old):
    flags = flags_B.reshape(-1, *[1] * (new.ndim - 1))
    return jnp.where(flags, new, old)

  return jax.tree.map(select, new, old)


def _array(name, value):
  """Returns an array of a list; anything else as it is."""
  if not isinstance(value, (list, tuple)):
    return value
  try:
    return jnp.asarray(value)
  except (TypeError, ValueError):
    errors.refuse(name, value, 'give an array of numbers, as jnp.array makes')


def _check(name, array, shape):
  if jnp.shape(array) != shape:
    errors.refuse(f'{name}.shape', jnp.shape(array), f'give {shape}')
  dtype = jnp.result_type(array)
  if jnp.issubdtype(dtype, jnp.inexact):
    errors.refuse(f'{name}.dtype', dtype.name, 'give whole numbers')
