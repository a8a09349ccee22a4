"""Parameters in 8 bits, of a model that adapters change.

    w_8 = round(w / s),  s = max |w| / 127 of an output channel     w ~ s w_8

A matrix ('kernel') has a scale for each column and layer, an embedding one for
each row; all other parameters stay float32. In a tree of parameters such an
array is {'int8': w_8, 'scale': s}. With train.quantized='int8' matmuls round
s w_8 to the same w_8 again, and quantize the activations as well.
Source: see ops/eight_bits.py.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops import eight_bits

PyTree = Any
PARTS = {'int8', 'scale'}
SUMMED = {'kernel': -2, 'embedding': -1}  # the axis that shares a scale


def pack(
  params: PyTree, chosen: Callable[[str], bool] = lambda _: True
) -> PyTree:
  """Returns parameters with their matrices in 8 bits.

  Args:
    params: nested dicts of arrays.
    chosen: whether a parameter is packed, by its name as 'mlp/up/kernel'.
  """

  def packed(path, x):
    axis = _axis(path, x)
    if axis is None or not chosen('/'.join(key.key for key in path)):
      return x
    numbers, scale = eight_bits.quantize(x, (axis,))
    return {'int8': numbers, 'scale': scale}

  return jax.tree.map_with_path(packed, params)


def unpack(params: PyTree) -> PyTree:
  """Returns packed parameters as float32, the inverse of `pack` but rounded."""
  return jax.tree.map(
    lambda x: (
      x['scale'] * x['int8'].astype(jnp.float32) if _is_packed(x) else x
    ),
    params,
    is_leaf=_is_packed,
  )


def unpacked_name(name: str) -> str:
  """Returns the name of the array of which a leaf is a part, or its own."""
  outer, _, part = name.rpartition('/')
  is_part = part in PARTS and outer.rpartition('/')[2] in SUMMED
  return outer if is_part else name


def packed_axes(name: str, logical_axes: str) -> dict[str, str]:
  """Returns the logical axes of a packed array's parts by name."""
  axes = logical_axes.split('x')
  axes[SUMMED[name.rpartition('/')[2]]] = '_'
  return {f'{name}/int8': logical_axes, f'{name}/scale': 'x'.join(axes)}


def is_packed(params: PyTree) -> bool:
  """Returns whether any leaf of a tree is packed."""
  return any(map(_is_packed, jax.tree.leaves(params, is_leaf=_is_packed)))


def _is_packed(x):
  return isinstance(x, dict) and x.keys() == PARTS


def _axis(path, x):
  axis = SUMMED.get(path[-1].key)
  return axis if axis is not None and x.ndim >= 2 else None
