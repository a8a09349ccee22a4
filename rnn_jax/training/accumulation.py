"""Gradient accumulation: the sums of a large batch, one slice at a time.

Losses are weighted sums, so adding up the slices and dividing once by the total
weight is exact, however much padding each slice has.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def accumulate(
  run: Callable[[PyTree, PyTree, jax.Array], tuple[PyTree, PyTree]],
  parts: int,
  carry: PyTree,
  logical_axes: PyTree,
  batch: PyTree,
  key: jax.Array,
) -> tuple[PyTree, PyTree]:
  """Runs `run` on `parts` slices of the rows and adds up what it returns.

  Args:
    run: (carry, batch, key) -> (sums, carry), sums any pytree of arrays.
    parts: the number of slices; it divides the rows.
    carry: the recurrent state of all rows, or None.
    logical_axes: of the carry, a tree like it; B is the axis of rows.
    batch: the whole batch, rows leading on every leaf.
    key: a PRNG key; each slice folds its number into it.

  Returns:
    (sums, carry) of the whole batch.
  """
  if parts == 1:
    return run(carry, batch, key)
  axes = None
  if carry is not None:
    axes = jax.tree.map(lambda x: x.split('x').index('B'), logical_axes)
  split = functools.partial(_split_rows, parts=parts)
  carries = jax.tree.map(split, carry, axes)
  batches = jax.tree.map(functools.partial(split, axis=0), batch)

  def add(total, part):
    carry, batch, i = part
    sums, carry = run(carry, batch, jax.random.fold_in(key, i))
    return jax.tree.map(jnp.add, total, sums), carry

  first = jax.tree.map(lambda x: x[0], (carries, batches))
  like, _ = jax.eval_shape(run, *first, key)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
  sums, carries = jax.lax.scan(
    add, zeros, (carries, batches, jnp.arange(parts))
  )
  return sums, jax.tree.map(_join_rows, carries, axes)


def _split_rows(x, axis, parts):
  """Row i of slice a is row i * parts + a, so that devices keep their rows."""
  x = x.reshape(*x.shape[:axis], -1, parts, *x.shape[axis + 1 :])
  return jnp.moveaxis(x, axis + 1, 0)


def _join_rows(x, axis):
  """The inverse of `_split_rows`."""
  x = jnp.moveaxis(x, 0, axis + 1)
  return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
