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
  """`advance(gradient, moments, key)` of a tensor, CHUNK numbers at a time."""
  turns, rest = divmod(gradient.size, CHUNK)
  if not turns:
    return advance(gradient, moments, key)

  def turn(n, held, size=CHUNK):
    part = jax.tree.map(
      lambda x: jax.lax.dynamic_slice_in_dim(
        x, n * CHUNK // unit(x), -(-size // unit(x))
      ),
      held,
    )
    part = advance(*part, jax.random.fold_in(key, n))
    return jax.tree.map(
      lambda x, new: jax.lax.dynamic_update_slice_in_dim(
        x, new, n * CHUNK // unit(x), 0
      ),
      held,
      part,
    )

  def unit(x):  # numbers that an entry stands for; of absmax_N a block
    return 1 if x.size == gradient.size else blockwise.BLOCK

  whole = gradient, moments
  held = jax.tree.map(lambda x: x.reshape(-1), whole)
  held = jax.lax.fori_loop(0, turns, turn, held)
  if rest:
    held = turn(turns, held, rest)
  return jax.tree.map(lambda x, like: x.reshape(like.shape), held, whole)


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
