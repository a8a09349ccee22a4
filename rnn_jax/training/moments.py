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
"""

import typing

import jax
import jax.numpy as jnp
import optax

from rnn_jax.ops import blockwise
from rnn_jax.ops import stochastic_rounding

CODES = {'mu': blockwise.SIGNED, 'nu': blockwise.UNSIGNED}
SMALL = 4096  # numbers; a tensor of fewer is not worth quantizing


class Blocks(typing.NamedTuple):
  """A moment as bytes: what `blockwise.quantize` returns."""

  codes: jax.Array
  absmax_N: jax.Array


def stored(transform, kind):
  """A transformation whose moments are stored as `kind` between updates.

  Args:
    transform: optax.GradientTransformation; its state is a NamedTuple with
      `count` (updates so far), `mu` (a moment of either sign) and `nu` (one
      that is never negative), as optax calls them, or but one of the two.
    kind: 'float32', 'bfloat16' or 'int8'.

  Returns:
    optax.GradientTransformation of the same updates but for the rounding.
  """
  if kind == 'float32':
    return transform

  def init(params):
    return _encode(transform.init(params), kind)

  def update(updates, state, params=None):
    updates, state = transform.update(updates, _decode(state), params)
    return updates, _encode(state, kind)

  return optax.GradientTransformation(init, update)


def _encode(state, kind):
  key = jax.random.fold_in(jax.random.key(0), state.count)
  encoded = {}
  for n, name in enumerate(_moments(state)):
    leaves, structure = jax.tree.flatten(getattr(state, name))
    if kind == 'bfloat16':
      keys = jax.random.split(jax.random.fold_in(key, n), len(leaves))
      leaves = map(stochastic_rounding.to_bfloat16, leaves, keys)
    else:
      leaves = [_quantize(x, name) for x in leaves]
    encoded[name] = jax.tree.unflatten(structure, leaves)
  return state._replace(**encoded)


def _quantize(x, name):
  if x.size < SMALL:
    return x
  codes, absmax_N = blockwise.quantize(x, CODES[name])
  if name == 'nu':
    codes = jnp.where(x > 0, jnp.maximum(codes, 1), codes)
  return Blocks(codes, absmax_N)


def _decode(state):
  def decode(x, name):
    if isinstance(x, Blocks):
      return blockwise.dequantize(*x, CODES[name])
    return x.astype(jnp.float32)

  return state._replace(
    **{
      name: jax.tree.map(
        lambda x, name=name: decode(x, name),
        getattr(state, name),
        is_leaf=lambda x: isinstance(x, Blocks),
      )
      for name in _moments(state)
    }
  )


def _moments(state):
  return [name for name in CODES if name in state._fields]
