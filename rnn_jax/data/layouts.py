"""The choice of a layout: examples in, batches of given shapes out."""

import grain

from rnn_jax import config
from rnn_jax.data import bucketing
from rnn_jax.data import ordered
from rnn_jax.data import packing
from rnn_jax.data import pooling
from rnn_jax.data import stream


def lay_out(
  examples: ordered.Ordered,
  data: config.Data,
  shapes: tuple[tuple[int, int], ...],
  seed: int | None = None,
) -> grain.DatasetIterator:
  """Returns the batches that `data.layout` makes of examples.

  `seed` decides the order of batches where the layout leaves it open.
  """
  if data.layout == 'buckets':
    return bucketing.Buckets(examples, shapes)
  if data.layout == 'padded':
    return pooling.Pooled(examples, shapes, 1, seed)
  if data.layout == 'sorted':
    return pooling.Pooled(examples, shapes, data.pool, seed)
  if data.layout == 'packed':
    return packing.Packed(examples, shapes[0], data.fit)
  return stream.Stream(examples, shapes[0], data.carry_state)
