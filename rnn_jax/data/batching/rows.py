"""Writing the ids of examples into the rows of a batch.

An example is an int32 array: a model reads `ids[:-1]` and predicts `ids[1:]`.
An id that it reads but doesn't predict is stored as `~id`, which is negative;
its weight is 0.
"""

import numpy as np

from rnn_jax.data.batching import batch as batch_lib


def cut(ids: np.ndarray, length: int) -> list[np.ndarray]:
  """Cuts an example into rows that predict at most `length` tokens."""
  return [ids[at : at + length + 1] for at in range(0, len(ids) - 1, length)]


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


def start_padding(batch: batch_lib.Batch) -> batch_lib.Batch:
  """Marks a start in rows that are all padding, so that no state leaks."""
  batch.starts_BxL[~batch.weights_BxL.any(1), 0] = 1
  return batch
