"""Plans of layouts for the tests: what a layout makes of sizes."""

import numpy as np

from rnn_jax import config
from rnn_jax.data.batching import layout as layout_lib
from rnn_jax.data.batching import shapes as shapes_lib


def plan(layout, sizes, shapes, seed=None, levels=None, **options):
  """Returns the layout's base.Laid."""
  data = config.section('data', layout=layout, **options)
  key = None if seed is None else (seed, 0)
  block = layout_lib.Block(
    np.asarray(sizes, np.int64), shapes, data, key, levels
  )
  made, again = (shapes_lib.layout(data).plan(block) for _ in range(2))
  for one, other in zip(made, again, strict=True):
    np.testing.assert_array_equal(one, other)
  return made


def batches(layout, sizes, shapes, **options):
  """Returns [(length, [[(window, skip, size) of a row's pieces]])]."""
  laid = plan(layout, sizes, shapes, **options)
  made = [(shapes[n][1], [[] for _ in range(shapes[n][0])]) for n in laid.shape]
  for batch, row, at, *piece in zip(
    *map(np.ndarray.tolist, laid[1:]), strict=True
  ):
    pieces = made[batch][1][row]
    assert at == sum(size for _, _, size in pieces)
    pieces.append(tuple(piece))
  return made


def sizes(layout, given, shapes, **options):
  """Returns [(length, [predictions of a row])]."""
  return [
    (length, [sum(size for _, _, size in row) for row in rows])
    for length, rows in batches(layout, given, shapes, **options)
  ]
