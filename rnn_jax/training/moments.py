"""How an optimizer's moments are stored between steps; arithmetic is float32.

    'float32'    4 bytes per number
    'bfloat16'   2 bytes, rounded stochastically (`ops.stochastic_rounding`)
    'int8'       1 byte, and 4 per block of 256 (`ops.blockwise`); tensors of
                 fewer than 4096 numbers stay float32

A second moment with b2 = .999 changes by a thousandth of itself in a step
without a gradient, and adjacent bfloat16 numbers are 4 to 8 thousandths apart:
rounded to the nearest, it would never fall.

Blocks span up to seven decades. A smaller second moment is stored as the
smallest number above 0: with 0, the update would be the first moment divided by
eps.

A tensor is decoded, updated and encoded in chunks, in place: otherwise XLA
would hold the float32 moments of many tensors at once, more than is saved.
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
SMALL = 4096  # numbers; smaller tensors aren't worth quantizing
CHUNK = 2**18  # numbers that are decoded at a time; a multiple of a block


class Blocks(typing.NamedTuple):
  """A moment as bytes: what `blockwise.quantize` returns."""

  codes: jax.Array
  absmax_N: jax.Array


def stored(
  transform: optax.GradientTransformation, kind: str
) -> optax.GradientTransformation:
  """Returns a transformation whose moments are stored as `kind`.

  Args:
    transform: an elementwise transformation. Its state is a NamedTuple with
      `count` (updates so far) and one or both of `mu` (a moment of either sign)
      and `nu` (one that is never negative), as in optax.
    kind: one of KINDS.

  Returns:
    A transformation whose updates differ only by the rounding of the moments.
  """
  if kind == 'float32':
    return transform
  return optax.GradientTransformation(
    functools.partial(_init, transform, kind),
    functools.partial(_update, transform),
  )


def _init(transform, kind, params):
  # Without the barrier XLA folds the codes of zeros at compile time.
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

  def advance(gradient, moments, key):
    decoded = {name: _decode(x, name) for name, x in moments.items()}
    gradient, new = transform.update(gradient, state._replace(**decoded))
    keys = jax.random.split(key, len(moments))
    return gradient, {
      name: _encode(getattr(new, name), name, x, key)
      for key, (name, x) in zip(keys, moments.items(), strict=True)
    }

  keys = jax.random.fold_in(jax.random.key(0), state.count)
  for n, leaf in enumerate(leaves):
    moments = {name: column[n] for name, column in columns.items()}
    key = jax.random.fold_in(keys, n)
    leaves[n], moments = _in_chunks(advance, leaf, moments, key)
    for name, column in columns.items():
      column[n] = moments[name]
  trees = {name: structure.unflatten(x) for name, x in columns.items()}
  count = optax.safe_increment(state.count)
  return structure.unflatten(leaves), state._replace(count=count, **trees)


def _in_chunks(advance, gradient, moments, key):
  """Runs `advance(gradient, moments, key)` on a tensor in chunks."""
  size = _chunk(gradient.size)
  if size == gradient.size:
    return advance(gradient, moments, key)

  def length(x):  # of a chunk; absmax_N has one entry for each block
    return size if x.size == gradient.size else size // blockwise.BLOCK

  def read(x, n):
    return jax.lax.dynamic_slice_in_dim(x, n * length(x), length(x))

  def write(x, chunk, n):
    return jax.lax.dynamic_update_slice_in_dim(x, chunk, n * length(x), 0)

  def body(n, carry):
    flat, chunk = carry
    chunk = advance(*chunk, jax.random.fold_in(key, n))
    flat = jax.tree.map(lambda x, new: write(x, new, n), flat, chunk)
    # Read one iteration ahead: XLA copies an array that an iteration reads and
    # then writes.
    return flat, jax.tree.map(lambda x: read(x, n + 1), flat)

  whole = gradient, moments
  flat = jax.tree.map(lambda x: x.reshape(-1), whole)
  first = jax.tree.map(lambda x: read(x, 0), flat)
  flat, _ = jax.lax.fori_loop(0, gradient.size // size, body, (flat, first))
  return jax.tree.map(lambda x, like: x.reshape(like.shape), flat, whole)


def _chunk(size):
  """Returns the numbers of a chunk: whole blocks, at most CHUNK, or all."""
  blocks, rest = divmod(size, blockwise.BLOCK)
  if size <= CHUNK or rest:
    return size
  divisors = range(CHUNK // blockwise.BLOCK, SMALL // blockwise.BLOCK, -1)
  per_chunk = next((n for n in divisors if not blocks % n), blocks)
  return per_chunk * blockwise.BLOCK


def _encode(x, name, like, key):
  """Returns a float32 moment in the format of `like`."""
  if isinstance(like, Blocks):
    codes, absmax_N = blockwise.quantize(x, CODES[name])
    if name == 'nu':
      codes = jnp.where(x > 0, jnp.maximum(codes, 1), codes)
    return Blocks(codes, absmax_N)
  if like.dtype == jnp.bfloat16:
    return stochastic_rounding.to_bfloat16(x, key)
  return x


def _decode(x, name):
  """Returns a stored moment in float32."""
  if isinstance(x, Blocks):
    return blockwise.dequantize(*x, CODES[name])
  return x.astype(jnp.float32)


def _moments(state):
  return {name: getattr(state, name) for name in CODES if name in state._fields}
