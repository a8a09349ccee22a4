"""The choice of a layout: examples in, batches of given shapes out."""

from collections.abc import Sequence

import grain
import numpy as np

from rnn_jax import config
from rnn_jax.data import batches_of_pictures
from rnn_jax.data import bucketing
from rnn_jax.data import ordered
from rnn_jax.data import packing
from rnn_jax.data import pooling
from rnn_jax.data import rarity
from rnn_jax.data import stream


def lay_out(
  examples: ordered.Ordered,
  data: config.Data,
  shapes: tuple[tuple[int, int], ...],
  seed: int | None = None,
  split: rarity.Split | None = None,
) -> grain.DatasetIterator:
  """Returns the batches that `data.layout` makes of examples.

  `seed` decides the order of batches where the layout leaves it open; `split`
  parts the rows of each bucket.
  """
  if data.layout == 'buckets':
    return bucketing.Buckets(examples, shapes, split)
  if data.layout == 'padded':
    return pooling.Pooled(examples, shapes, 1, seed)
  if data.layout == 'sorted':
    return pooling.Pooled(examples, shapes, data.pool, seed)
  if data.layout == 'packed':
    return packing.Packed(examples, shapes[0], data.fit)
  if data.layout == 'images':
    rows, _ = shapes[0]
    return batches_of_pictures.Batches(examples, rows, data.image)
  return stream.Stream(examples, shapes[0], data.carry_state)


def efficiency(
  lengths: Sequence[int],
  data: config.Data,
  shapes: tuple[tuple[int, int], ...],
  seed: int,
) -> float:
  """Returns the share of real tokens in batches of rows of these lengths.

  The rows are read again and again, until the batches hold as many tokens as
  the rows do: an end, which pads, would count for more than it does in a run.
  """
  rows = [np.zeros(length + 1, np.int32) for length in lengths]
  examples = ordered.Ordered(grain.MapDataset.source(rows).repeat(), 0)
  batches = lay_out(examples, data, shapes, seed)
  real, padded = 0, 0
  while real < sum(lengths):
    weights = next(batches).weights_BxL
    real, padded = real + int(weights.sum()), padded + weights.size
  return real / max(padded, 1)
