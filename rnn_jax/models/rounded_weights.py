"""Parameters in 8 or 4 bits, of a model that adapters change.

    int8   w ~ s w_8,  s = max |w| / 127 of an output channel
    int4   w ~ s w_4,  s for each 32 numbers of one, see ops/products/formats.py

A matrix ('kernel') has an output channel for each column and layer, an
embedding one for each row; all other parameters stay float32. In a tree of
parameters such an array is {'int8': w_8, 'scale': s}, or {'int4': b, 'scale':
s}, where a byte b has two numbers that follow each other in a channel, each 8
too large. Matrices whose channels have an odd number of numbers stay in 8 bits.
With train.quantized='int8' matmuls round s w_8 to the same w_8 again, and
quantize the activations as well.
Source: see ops/eight_bits.py.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops import eight_bits
from rnn_jax.ops.products import formats

PyTree = Any
FORMATS = 'int8', 'int4'
PARTS = {*FORMATS, 'scale'}
HELD = tuple({name, 'scale'} for name in FORMATS)
SUMMED = {'kernel': -2, 'embedding': -1}  # the axis that shares a scale


def pack(
  params: PyTree,
  chosen: Callable[[str], bool] = lambda _: True,
  format: str = 'int8',
) -> PyTree:
  """Returns parameters with their matrices in 8 or 4 bits.

  Args:
    params: nested dicts of arrays.
    chosen: whether a parameter is packed, by its name as 'mlp/up/kernel'.
    format: one of FORMATS.
  """

  def packed(path, x):
    axis = _axis(path, x)
    if axis is None or not chosen('/'.join(key.key for key in path)):
      return x
    if format == 'int4' and x.shape[axis] % 2 == 0:
      return _in_4_bits(x, axis)
    numbers, scale = eight_bits.quantize(x, (axis,))
    return {'int8': numbers, 'scale': scale}

  return jax.tree.map_with_path(packed, params)


def _in_4_bits(x, axis):
  w = jnp.moveaxis(x, axis, -2)
  run = functools.partial(formats.quantize, format='int4')
  for _ in w.shape[:-2]:
    run = functools.partial(jax.lax.map, run)
  rounded = run(w)
  n = (rounded.numbers_KxF + 8).astype(jnp.uint8)
  pairs = n[..., ::2, :] | n[..., 1::2, :] << 4
  parts = {'int4': pairs, 'scale': rounded.scales}
  return {name: jnp.moveaxis(part, -2, axis) for name, part in parts.items()}


def unpack(params: PyTree) -> PyTree:
  """Returns packed parameters as float32, the inverse of `pack` but rounded."""

  def unpacked(path, x):
    if not _is_packed(x):
      return x
    if 'int4' in x:
      return _from_4_bits(x, SUMMED[path[-1].key])
    return x['scale'] * x['int8'].astype(jnp.float32)

  return jax.tree.map_with_path(unpacked, params, is_leaf=_is_packed)


def _from_4_bits(x, axis):
  pairs, scale = (jnp.moveaxis(x[n], axis, -2) for n in ('int4', 'scale'))
  halves = jnp.stack((pairs & 15, pairs >> 4), -2)
  numbers = halves.reshape(*pairs.shape[:-2], -1, pairs.shape[-1])
  scale = jnp.repeat(scale.astype(jnp.float32), formats.BLOCK, -2)
  scale = scale[..., : numbers.shape[-2], :]
  w = scale * (numbers.astype(jnp.float32) - 8)
  return jnp.moveaxis(w, -2, axis)


def unpacked_name(name: str) -> str:
  """Returns the name of the array of which a leaf is a part, or its own."""
  outer, _, part = name.rpartition('/')
  is_part = part in PARTS and outer.rpartition('/')[2] in SUMMED
  return outer if is_part else name


def packed_axes(name: str, logical_axes: str) -> dict[str, str]:
  """Returns the logical axes of a packed array's parts by name."""
  axes = logical_axes.split('x')
  axes[SUMMED[name.rpartition('/')[2]]] = '_'
  summed = 'x'.join(axes)
  own = {'int8': logical_axes, 'int4': summed, 'scale': summed}
  return {f'{name}/{part}': own[part] for part in own}


def is_packed(params: PyTree) -> bool:
  """Returns whether any leaf of a tree is packed."""
  return any(map(_is_packed, jax.tree.leaves(params, is_leaf=_is_packed)))


def _is_packed(x):
  return isinstance(x, dict) and x.keys() in HELD


def _axis(path, x):
  axis = SUMMED.get(path[-1].key)
  return axis if axis is not None and x.ndim >= 2 else None
