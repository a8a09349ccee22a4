"""The letters of the axes, and a check of shapes at trace time.

B batch, L time, N chunks, C chunk length, D model width, H heads, K key width
a head, P value width a head, S vector-state width, F MLP width, V vocabulary,
W attention window, R stacked layers. A shape is its letters joined by `x`, as
in `q_BxLxHxK`. The same letters name the logical axes of parameters, by which
they are sharded: 'DxF' is a matrix, 'D+F' a parameter of axis D that is added
to a sum over F, as the last bias of an MLP.
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
  'S': 'state width',
  'F': 'MLP width',
  'V': 'vocabulary',
  'W': 'window',
  'R': 'layers',
}


def check(**arrays: Any) -> dict[str, int]:
  """Checks that arrays have the axes in their names.

  Args:
    **arrays: arrays by name; the part after the last `_` is the shape. A digit
      in it is an axis of exactly that size.

  Returns:
    The size of each letter.

  Raises:
    ValueError: the number of axes is wrong, or two arrays disagree.
  """
  sizes, seen_in = {}, {}
  for name, array in arrays.items():
    letters = name.rpartition('_')[2].split('x')
    if len(letters) != len(array.shape):
      raise ValueError(
        f'{name} has shape {tuple(array.shape)}: it needs {len(letters)} axes'
      )
    for letter, size in zip(letters, array.shape, strict=True):
      wanted = int(letter) if letter.isdigit() else sizes.get(letter, size)
      if size != wanted:
        where = seen_in.get(letter, 'its name')
        raise ValueError(
          f'{name} has shape {tuple(array.shape)}, but '
          f'{AXES.get(letter, letter)} ({letter}) is {wanted} in {where}'
        )
      sizes[letter] = size
      seen_in.setdefault(letter, name)
  return sizes
