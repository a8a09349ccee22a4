"""Sums and products of whole arrays in C++; rnn_jax/native/rows.cc.

The order of a sum depends on its length and on which axes are summed, not on
the other numbers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.native import library

Numbers = tuple[tuple[Sequence[int], Sequence[int]], ...]


class Product(NamedTuple):
  """How the library multiplies x and w: y[o, f] = sum_k x[o, k] w[o, k, f].

  Attributes:
    outer: of each axis of o its size, and by how many numbers neighbours are
      apart in x and in w.
    K: numbers of a sum.
    F: sums that are next to each other in y, w's last axis.
    apart: x's numbers along k, w's along k and f.
    shape: of the result.
    swaps: whether x is in the place of w, and w in that of x.
    order: the axes of jax.lax.dot_general's result in that of this one.
  """

  outer: list[tuple[int, int, int]]
  K: int
  F: int
  apart: tuple[int, int, int]
  shape: tuple[int, ...]
  swaps: bool
  order: tuple[int, ...]


def total(x: jax.Array, axes: Sequence[int]) -> jax.Array:
  """Returns the sum of x over axes, in x's dtype.

  Raises:
    NotImplementedError: the library isn't available.
  """
  axes = sorted(axis % x.ndim for axis in axes)
  kept = [axis for axis in range(x.ndim) if axis not in axes]
  shape = [x.shape[axis] for axis in kept]
  if axes and axes[-1] - axes[0] >= len(axes):  # not next to each other
    x = x.transpose(*kept, *axes)
    axes = range(len(kept), x.ndim)
  if not math.prod(x.shape):
    return jnp.zeros(shape, x.dtype)
  ends = (axes[0], axes[-1] + 1) if axes else (x.ndim, x.ndim)
  parts = x.shape[: ends[0]], x.shape[slice(*ends)], x.shape[ends[1] :]
  outer, N, inner = map(math.prod, parts)
  result = jax.ShapeDtypeStruct((outer, inner), jnp.float32)
  y = library.call(
    'row_sums', (result,), x.astype(jnp.float32).reshape(outer, N, inner)
  )[0]
  return y.reshape(shape).astype(x.dtype)


def dot_general(x: jax.Array, w: jax.Array, numbers: Numbers) -> jax.Array:
  """Returns jax.lax.dot_general(x, w, numbers) in float32.

  Raises:
    NotImplementedError: the library isn't available.
  """
  (x_summed, w_summed), (x_rows, w_rows) = numbers
  if len(x_summed) != 1:
    x, w = (_join(a, n) for a, n in ((x, x_summed), (w, w_summed)))
    x_rows, w_rows = (
      [axis - sum(n < axis for n in summed) for axis in rows]
      for rows, summed in ((x_rows, x_summed), (w_rows, w_summed))
    )
    x_summed, w_summed = (x.ndim - 1,), (w.ndim - 1,)
  numbers = (x_summed, w_summed), (x_rows, w_rows)
  way = product_of(x.shape, w.shape, numbers)
  if not math.prod(x.shape) * math.prod(w.shape):
    y = jnp.zeros(way.shape)
  else:
    given = (w, x) if way.swaps else (x, w)
    size = math.prod(size for size, _, _ in way.outer)
    result = jax.ShapeDtypeStruct((size, way.F), jnp.float32)
    y = library.call(
      'row_products',
      (result,),
      *(a.astype(jnp.float32).reshape(-1) for a in given),
      axes=np.array(way.outer, np.int64).reshape(-1),
      inner=np.array((way.K, way.F, *way.apart), np.int64),
    )[0]
  return y.reshape(way.shape).transpose(*way.order)


def product_of(x: Sequence[int], w: Sequence[int], numbers: Numbers) -> Product:
  """Returns how the library multiplies arrays, with one summed axis.

  Args:
    x: the shape of one.
    w: of the other.
    numbers: as of jax.lax.dot_general.
  """
  (x_summed, w_summed), (x_rows, w_rows) = numbers
  swaps = _is_wide(x, x_summed, x_rows) and not _is_wide(w, w_summed, w_rows)
  if swaps:
    x, x_summed, x_rows, w, w_summed, w_rows = (
      *(w, w_summed, w_rows),
      *(x, x_summed, x_rows),
    )
  x_free, w_free = _others(x, x_summed, x_rows), _others(w, w_summed, w_rows)
  of_x, of_w = _apart(x), _apart(w)
  outer = [
    (x[n], of_x[n], of_w[m]) for n, m in zip(x_rows, w_rows, strict=True)
  ]
  outer += [(x[n], of_x[n], 0) for n in x_free]
  outer += [(w[m], 0, of_w[m]) for m in w_free[:-1]]
  (k,), (m,) = x_summed, w_summed
  F, w_f = ([(w[n], of_w[n]) for n in w_free[-1:]] or [(1, 0)])[0]
  shape = [x[n] for n in (*x_rows, *x_free)] + [w[n] for n in w_free]
  order, rows, free = [*range(len(shape))], len(x_rows), len(x_free)
  if swaps:
    middle = rows + free
    order = [*order[:rows], *order[middle:], *order[rows:middle]]
  apart = of_x[k], of_w[m], w_f
  return Product(outer, x[k], F, apart, tuple(shape), swaps, tuple(order))


def _is_wide(shape, summed, rows):
  """Whether neighbouring numbers of an array belong to several results."""
  last = len(shape) - 1
  return last not in (*summed, *rows) and shape[last] > 1


def _others(shape, *used):
  axes = range(len(shape))
  return [n for n in axes if not any(n in own for own in used)]


def _apart(shape):
  """Returns by how many numbers neighbours along each axis are apart."""
  return [math.prod(shape[n + 1 :]) for n in range(len(shape))]


def _join(x, axes):
  """Moves axes to the end, as one."""
  kept = _others(x.shape, axes)
  shape = [x.shape[n] for n in kept]
  return x.transpose(*kept, *axes).reshape(*shape, -1)
