"""The names of the axes, and a check of shapes at trace time.

B batch, L time, N chunks, C chunk length, D model width, H heads, K key width
a head, P value width a head, G groups of heads, S vector-state width, F MLP
width, E experts, V vocabulary, W attention window, R stacked layers. A shape is
its axes joined by `x`, as in `q_BxLxHxK`. The same names are the logical axes
by which parameters are sharded: 'DxF' is a matrix, 'D+F' a parameter of axis D
that is added to a sum over F, such as the last bias of an MLP.
"""

from typing import Any

AXES = {
  'B': 'batch',
  'L': 'time',
  'N': 'chunks',
  'C': 'chunk length',
  'D': 'model width',
  'H': 'heads',
  'K': 'key width',
  'P': 'value width',
  'G': 'groups',
  'S': 'state width',
  'F': 'MLP width',
  'E': 'experts',
  'V': 'vocabulary',
  'W': 'window',
  'R': 'layers',
}


def check(**arrays: Any) -> dict[str, int]:
  """Checks that arrays have the axes in their names.

  Args:
    **arrays: arrays by name; the part after the last `_` is the shape. A number
      in it is an axis of exactly that size.

  Returns:
    The size of each axis, by its name.

  Raises:
    ValueError: the number of axes is wrong, or two arrays disagree.
  """
  sizes: dict[str, int] = {}
  seen_in: dict[str, str] = {}
  for name, array in arrays.items():
    axes = name.rpartition('_')[2].split('x')
    if len(axes) != len(array.shape):
      raise ValueError(
        f'{name} has shape {tuple(array.shape)}: it needs {len(axes)} axes'
      )
    for axis, size in zip(axes, array.shape, strict=True):
      expected = int(axis) if axis.isdigit() else sizes.get(axis, size)
      if size != expected:
        where = seen_in.get(axis, 'its name')
        raise ValueError(
          f'{name} has shape {tuple(array.shape)}, but '
          f'{AXES.get(axis, axis)} ({axis}) is {expected} in {where}'
        )
      sizes[axis] = size
      seen_in.setdefault(axis, name)
  return sizes
