"""Writing ids into the rows of a batch.

A model reads `ids[:-1]` and predicts `ids[1:]`. An id that it reads but doesn't
predict is stored as `~id`, which is negative; its weight is 0.
"""

import numpy as np

from rnn_jax.data.batching import batch as batch_lib


def predicted(ids: np.ndarray) -> int:
  """Returns how many ids of an example are predicted."""
  return int(np.count_nonzero(ids[1:] >= 0))


def blank(rows: int, length: int) -> batch_lib.Batch:
  """Returns a batch of padding."""
  shape = rows, length
  return batch_lib.Batch(
    np.zeros(shape, np.int32),
    np.zeros(shape, np.int32),
    np.zeros(shape, np.float32),
    np.zeros(shape, np.int32),
  )


def write(batch: batch_lib.Batch, row: int, at: int, ids: np.ndarray) -> int:
  """Writes ids into a row from step `at` on. Returns the step after them."""
  stop = at + len(ids) - 1
  plain = np.maximum(ids, ~ids)
  batch.tokens_BxL[row, at:stop] = plain[:-1]
  batch.targets_BxL[row, at:stop] = plain[1:]
  batch.weights_BxL[row, at:stop] = ids[1:] >= 0
  return stop
