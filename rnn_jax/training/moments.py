"""How an optimizer's moments lie between steps; arithmetic is float32.

    'float32'    4 bytes a number
    'bfloat16'   2 bytes, rounded up or down at random
    'int8'       1 byte, and 4 for each block of 256 (`ops.blockwise`); tensors
                 of fewer than 4096 numbers stay float32

A second moment with b2 = .999 changes by a thousandth of itself in a step
without a gradient, and bfloat16's neighbours are 4 to 8 thousandths apart:
rounded to the nearest it would never fall again, so chance decides
(`ops.stochastic_rounding`).

Blocks hold numbers of up to seven decades. A second moment that is smaller is
kept as the least that isn't 0: with 0 for it, a first moment that is left over
would be divided by eps alone.

A tensor is decoded, updated and encoded a chunk at a time, in place: XLA would
otherwise hold many tensors' float32 moments at once, more than is saved.
"""

import functools
import typing

import jax
import jax.numpy as jnp
import optax

from rnn_jax.ops import blockwise
from rnn_jax.ops import stochastic_rounding

KINDS = ('float32', 'bfloat16', 'int8')
CODES = {'mu': blockwise.SIGNED, 'nu': blockwise.UNSIGNED}
SMALL = 4096  # numbers; a tensor of fewer is not worth quantizing
CHUNK = 2**18  # numbers that are decoded at a time; a multiple of a block


class Blocks(typing.NamedTuple):
  """A moment as bytes: what `blockwise.quantize` returns."""

  codes: jax.Array
  absmax_N: jax.Array


def stored(transform, kind):
  """A transformation whose moments are stored as `kind` between updates.

  Args:
    transform: optax.GradientTransformation that treats each number by itself.
      Its state is a NamedTuple with `count` (updates so far), `mu` (a moment
      of either sign) and `nu` (one that is never negative), as optax calls
      them, or but one of the two.
    kind: 'float32', 'bfloat16' or 'int8'.

  Returns:
    optax.GradientTransformation of the same updates but for the rounding.
  """
  if kind == 'float32':
    return transform
  return optax.GradientTransformation(
    functools.partial(_init, transform, kind),
    functools.partial(_update, transform),
  )


def _init(transform, kind, params):
  # Without the barrier XLA computes the codes of zeros while it compiles.
  state = jax.lax.optimization_barrier(transform.init(params))

  def encode(x, name):
    if kind == 'bfloat16':
      return x.astype(jnp.bfloat16)
    if x.size < SMALL:
      return x
    return Blocks(*blockwise.quantize(x, CODES[name]))

  trees = {
    name: jax.tree.map(functools.partial(encode, name=name), tree)
    for name, tree in _moments(state).items()
  }
  return state._replace(**trees)


def _update(transform, updates, state, params=None):
  del params
  leaves, structure = jax.tree.flatten(updates)
  columns = {
    name: structure.flatten_up_to(tree)
    for name, tree in _moments(state).items()
  }

  def advance(gradient, held, key):
    decoded = {name: _decode(x, name) for name, x in held.items()}
    gradient, new = transform.update(gradient, state._replace(**decoded))
    keys = jax.random.split(key, len(held))
    return gradient, {
      name: _encode(getattr(new, name), name, x, key)
      for key, (name, x) in zip(keys, held.items(), strict=True)
    }

  keys = jax.random.fold_in(jax.random.key(0), state.count)
  for n, leaf in enumerate(leaves):
    held = {name: column[n] for name, column in columns.items()}
    key = jax.random.fold_in(keys, n)
    leaves[n], held = _in_chunks(advance, leaf, held, key)
    for name, column in columns.items():
      column[n] = held[name]
  trees = {name: structure.unflatten(x) for name, x in columns.items()}
  count = optax.safe_increment(state.count)
  return structure.unflatten(leaves), state._replace(count=count, **trees)


def _in_chunks(advance, gradient, moments, key):
  """`advance(gradient, moments, key)` of a tensor, a chunk at a time."""
  size = _chunk(gradient.size)
  if size == gradient.size:
    return advance(gradient, moments, key)

  def length(x):  # of a chunk; absmax_N has one entry for each block
    return size if x.size == gradient.size else size // blockwise.BLOCK

  def read(x, n):
    return jax.lax.dynamic_slice_in_dim(x, n * length(x), length(x))

  def write(x, chunk, n):
    return jax.lax.dynamic_update_slice_in_dim(x, chunk, n * length(x), 0)

  def turn(n, carry):
    held, chunk = carry
    chunk = advance(*chunk, jax.random.fold_in(key, n))
    held = jax.tree.map(lambda x, new: write(x, new, n), held, chunk)
    # Read a turn ahead: what reads and writes the same array in one turn, XLA
    # would give a copy of it.
    return held, jax.tree.map(lambda x: read(x, n + 1), held)

  whole = gradient, moments
  held = jax.tree.map(lambda x: x.reshape(-1), whole)
  first = jax.tree.map(lambda x: read(x, 0), held)
  turns = gradient.size // size
  held, _ = jax.lax.fori_loop(0, turns, turn, (held, first))
  return jax.tree.map(lambda x, like: x.reshape(like.shape), held, whole)


def _chunk(size):
  """The most numbers up to CHUNK, in blocks, that divide a tensor; or all."""
  blocks, rest = divmod(size, blockwise.BLOCK)
  if size <= CHUNK or rest:
    return size
  divisors = range(CHUNK // blockwise.BLOCK, SMALL // blockwise.BLOCK, -1)
  found = next((n for n in divisors if not blocks % n), blocks)
  return found * blockwise.BLOCK


def _encode(x, name, like, key):
  """Stores a float32 moment of a tensor, or of a chunk, as `like` is."""
  if isinstance(like, Blocks):
    codes, absmax_N = blockwise.quantize(x, CODES[name])
    if name == 'nu':
      codes = jnp.where(x > 0, jnp.maximum(codes, 1), codes)
    return Blocks(codes, absmax_N)
  if like.dtype == jnp.bfloat16:
    return stochastic_rounding.to_bfloat16(x, key)
  return x


def _decode(x, name):
  """The float32 numbers of a stored moment, or of a chunk of it."""
  if isinstance(x, Blocks):
    return blockwise.dequantize(*x, CODES[name])
  return x.astype(jnp.float32)


def _moments(state):
  return {name: getattr(state, name) for name in CODES if name in state._fields}
