"""Routed functions: each row of an array runs some of E functions.

    y_t = sum_j gate_tj f(params[chosen_tj], x_t)

The pairs (t, j) are sorted by function and run in blocks of rows of one
function, as many blocks as there are: no row is dropped, all shapes are static,
and the work is that of the rows, whatever they choose. An entry of `chosen`
outside of 0, ..., E - 1 is another device's: it adds nothing. The backward pass
runs f again, so only the arguments are stored.
Source: Gale et al., "MegaBlocks: Efficient Sparse Training with
Mixture-of-Experts", 2022.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

BLOCK = 128  # rows that run at a time, at most
NAME = 'routed_blocks_'  # of the program that runs them, and how many

PyTree = Any
# (params of one function, x_CxD) -> y_CxP
Function = Callable[[PyTree, jax.Array], jax.Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 5))
def apply(
  function: Function,
  params: PyTree,
  x_TxD: jax.Array,
  chosen_TxJ: jax.Array,
  gate_TxJ: jax.Array,
  shards: int = 1,
) -> jax.Array:
  """Returns y_TxP in float32; see the module's docstring.

  Args:
    function: f, which treats rows alike.
    params: of all functions, Ex... leaves.
    x_TxD: T rows.
    chosen_TxJ: int32, different functions in each row.
    gate_TxJ: float32.
    shards: how many devices share the functions, for `repeats`.
  """
  return _forward(function, params, x_TxD, chosen_TxJ, gate_TxJ, shards)[0]


def repeats(name: str) -> int:
  """Returns how often the body of a program's loop runs in an even load.

  Args:
    name: of a jitted function; of others than those of this file: 1.
  """
  return int(name.removeprefix(NAME)) if name.startswith(NAME) else 1


class _Pairs(NamedTuple):
  """The pairs (t, j), sorted by their function."""

  place_TxJ: jax.Array  # of each pair
  row_M: jax.Array  # t of each place; M = T J and a block more
  first_E: jax.Array  # place of each function's first pair
  last_E: jax.Array  # and the place after its last
  ends_E: jax.Array  # number of blocks up to each function's last
  size: int  # rows of a block

  def block(self, n):
    """Returns (function, its first place, its rows, which are its own)."""
    e = jnp.searchsorted(self.ends_E, n, side='right')
    after = self.ends_E[e] - n  # blocks up to the function's last, this one too
    blocks = -((self.first_E[e] - self.last_E[e]) // self.size)
    first = self.first_E[e] + (blocks - after) * self.size
    own_C = first + jnp.arange(self.size) < self.last_E[e]
    return e, first, _rows(self.row_M, first, self.size), own_C


def _sort(chosen_TxJ, E):
  pairs = chosen_TxJ.size
  size = min(BLOCK, chosen_TxJ.shape[0])
  chosen = jnp.where(
    (chosen_TxJ >= 0) & (chosen_TxJ < E), chosen_TxJ, E
  ).reshape(-1)
  order = jnp.argsort(chosen)
  place = jnp.zeros_like(order).at[order].set(jnp.arange(pairs))
  counts_E = jnp.sum(chosen[:, None] == jnp.arange(E)[None], 0)
  last_E = jnp.cumsum(counts_E)
  row_M = jnp.pad(order // chosen_TxJ.shape[1], (0, size))
  return _Pairs(
    place.reshape(chosen_TxJ.shape),
    row_M,
    last_E - counts_E,
    last_E,
    jnp.cumsum(-(-counts_E // size)),
    size,
  )


def _forward(function, params, x_TxD, chosen_TxJ, gate_TxJ, shards):
  pairs = _sort(chosen_TxJ, _count(params))
  one = jax.eval_shape(function, _of(params, 0), x_TxD[: pairs.size])

  def run(n, y_MxP):
    e, first, row_C, own_C = pairs.block(n)
    y_CxP = function(_of(params, e), x_TxD[row_C])
    # The next block writes over what isn't this one's.
    y_CxP = jnp.where(own_C[:, None], y_CxP, 0)
    return _write(y_MxP, y_CxP, first)

  y_MxP = jnp.zeros((len(pairs.row_M), *one.shape[1:]), one.dtype)
  y_MxP = _repeat(run, y_MxP, pairs, shards)
  y_TxP = jnp.sum(gate_TxJ[..., None] * y_MxP[pairs.place_TxJ], 1)
  return y_TxP, (params, x_TxD, chosen_TxJ, gate_TxJ)


def _backward(function, shards, residuals, dy_TxP):
  params, x_TxD, chosen_TxJ, gate_TxJ = residuals
  pairs = _sort(chosen_TxJ, _count(params))
  M = len(pairs.row_M)
  gate_M = jnp.zeros(M).at[pairs.place_TxJ].set(gate_TxJ)

  def run(n, sums):
    dparams, dx_MxD, dgate_M = sums
    e, first, row_C, own_C = pairs.block(n)
    y_CxP, transpose = jax.vjp(function, _of(params, e), x_TxD[row_C])
    dy_CxP = jnp.where(own_C[:, None], dy_TxP[row_C], 0)
    gate_C = _rows(gate_M, first, pairs.size)
    add, dx_CxD = transpose((gate_C[:, None] * dy_CxP).astype(y_CxP.dtype))
    dparams = jax.tree.map(lambda x, add: x.at[e].add(add), dparams, add)
    dgate_C = jnp.sum(dy_CxP * y_CxP, -1)
    return (
      dparams,
      _write(dx_MxD, dx_CxD, first),
      _write(dgate_M, dgate_C, first),
    )

  zeros = (
    jax.tree.map(jnp.zeros_like, params),
    jnp.zeros((M, x_TxD.shape[1]), x_TxD.dtype),
    jnp.zeros(M),
  )
  dparams, dx_MxD, dgate_M = _repeat(run, zeros, pairs, shards)
  dx_TxD = jnp.sum(dx_MxD[pairs.place_TxJ], 1, dtype=jnp.float32)
  dgate_TxJ = dgate_M[pairs.place_TxJ].astype(gate_TxJ.dtype)
  return dparams, dx_TxD.astype(x_TxD.dtype), None, dgate_TxJ


def _repeat(run, begin, pairs, shards):
  """Runs `run` on all blocks."""

  def loop(count, begin):
    return jax.lax.fori_loop(0, count, run, begin)

  even = -(-pairs.place_TxJ.size // (pairs.size * shards))
  loop.__name__ = f'{NAME}{even}'
  return jax.jit(loop)(pairs.ends_E[-1], begin)


def _count(params):
  return len(jax.tree.leaves(params)[0])


def _of(params, e):
  return jax.tree.map(
    lambda x: jax.lax.dynamic_index_in_dim(x, e, keepdims=False), params
  )


def _rows(x, first, size):
  return jax.lax.dynamic_slice_in_dim(x, first, size)


def _write(x, rows, first):
  return jax.lax.dynamic_update_slice_in_dim(x, rows, first, 0)


apply.defvjp(_forward, _backward)
