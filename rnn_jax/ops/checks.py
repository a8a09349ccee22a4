"""What the doors of several ops check alike, and how they log a choice."""

import functools
import logging

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.system import target


def check_rows(
  name: str, x_BxLx_: jax.Array, starts_BxL: jax.Array | None
) -> None:
  """Checks that rows have steps, and as many marks of starts.

  Raises:
    ValueError: the array `name` has no steps, or the starts another shape.
  """
  rows = x_BxLx_.shape[:2]
  if rows[1] < 1:
    raise ValueError(f'{name} has L=0: give one step or more')
  if starts_BxL is not None and starts_BxL.shape != rows:
    raise ValueError(f'starts_BxL has shape {starts_BxL.shape}, not {rows}')


def check_groups(name: str, groups: int, heads: int) -> None:
  """Checks that groups of heads can share what the array `name` has.

  Raises:
    ValueError: the number of groups doesn't divide that of heads.
  """
  if not groups or heads % groups:
    raise ValueError(
      f'{name} has G={groups} groups, which must divide H={heads} heads'
    )


def check_decays(loga_BxLxHxK: jax.Array, each: tuple[int, ...]) -> None:
  """Checks that there is a decay for each key, or one a head.

  Args:
    loga_BxLxHxK: the log-decays.
    each: the shape of one for each key.

  Raises:
    ValueError: the log-decays have another shape.
  """
  loga = loga_BxLxHxK.shape
  if loga not in (each, (*each[:-1], 1)):
    raise ValueError(
      f'loga_BxLxHxK has shape {loga}: give {each}, or '
      f'{(*each[:-1], 1)} for one decay a head'
    )


def check_form(
  impl: str, impls: tuple[str, ...], chunk_length: int | None
) -> None:
  """Checks the name of a form, and the length of its chunks.

  Raises:
    ValueError: it isn't one of `impls`, or the length is below 1.
  """
  if impl not in impls:
    raise ValueError(f'impl={impl!r}: choose one of {impls}')
  if chunk_length is not None and chunk_length < 1:
    raise ValueError(f'chunk_length={chunk_length}: give 1 or more')


def check_one_step(impl: str, length: int) -> None:
  """Checks that 'step' gets a single step.

  Raises:
    NotImplementedError: it gets more.
  """
  if impl == 'step' and length != 1:
    raise NotImplementedError(
      f"impl='step' runs one step, not L={length}: use 'chunked' or 'scan'"
    )


def lacking_native() -> str:
  """Returns why this process can't run C++; '' if it can."""
  if (device := target.platform()) != 'cpu':
    return f"impl='native' is for a CPU, not for a {device}"
  return library.lacking()


def state_dtype(state: jax.Array) -> jax.typing.DTypeLike:
  """Returns the format in which a recurrence returns a state like this.

  A state in bfloat16 stays so: computed in float32, it is rounded to nearest,
  ties to even, after the last step of a call. Others become float32.
  """
  return jnp.bfloat16 if state.dtype == jnp.bfloat16 else jnp.float32


def check_shapes(
  *expected: tuple[str, jax.Array | None, tuple[int, ...]],
) -> None:
  """Checks (name, array or None, shape) of arrays.

  Raises:
    ValueError: an array has another shape.
  """
  for name, x, shape in expected:
    if x is not None and x.shape != shape:
      raise ValueError(f'{name} has shape {x.shape}, not {shape}')


def to_marks(starts_BxL: jax.Array | None, B: int) -> jax.Array:
  """Returns starts as C++ reads them: bytes BxL, or Bx0 for None."""
  if starts_BxL is None:
    return jnp.zeros((B, 0), jnp.uint8)
  return (starts_BxL != 0).astype(jnp.uint8)


@functools.cache
def log_choice(op: str, impl: str, operands: str = '') -> None:
  """Logs, once, which form the 'auto' of an op runs."""
  form = f'{impl!r} in {operands}' if operands else repr(impl)
  logging.info("%s: impl='auto' runs %s", op, form)
