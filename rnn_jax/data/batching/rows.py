"""Writing the ids of examples into the rows of a batch.

An example is an int32 array: a model reads `ids[:-1]` and predicts `ids[1:]`.
An id that it reads but doesn't predict is stored as `~id`, which is negative;
its weight is 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax.data.batching import batch as batch_lib

Owns = Callable[[int, int], bool]  # (rows of a batch, row)


class Deferred:
  """Ids whose number is known: they are made when a row takes them, if it does.

  Where several processes make the same batches, rows of other processes'
  devices stay blank: `owns` says which are this one's. A layout needs the
  number of ids and parts of them, and writes them with `write`.
  """

  def __init__(
    self,
    size: int,
    make: Callable[[], np.ndarray],
    owns: Owns,
    chosen: slice = slice(None),
  ) -> None:
    """Describes the chosen ones of `size` ids that `make` returns."""
    self._size = size
    self._make = make
    self._chosen = range(size)[chosen]
    self.owns = owns

  def __len__(self) -> int:
    return len(self._chosen)

  def __getitem__(self, index: slice) -> 'Deferred':
    part = self._chosen[index]
    chosen = slice(part.start, part.stop)
    return Deferred(self._size, self._make, self.owns, chosen)

  def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
    del dtype, copy
    ids = self._make()
    assert len(ids) == self._size
    return ids[self._chosen.start : self._chosen.stop]


Ids = np.ndarray | Deferred


def cut(ids: np.ndarray, length: int) -> list[np.ndarray]:
  """Cuts an example into rows that predict at most `length` tokens."""
  return [ids[at : at + length + 1] for at in range(0, len(ids) - 1, length)]


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


def write(batch: batch_lib.Batch, row: int, at: int, ids: Ids) -> int:
  """Writes ids into a row from step `at` on. Returns the step after them."""
  stop = at + len(ids) - 1
  if isinstance(ids, Deferred):
    if not ids.owns(len(batch.weights_BxL), row):
      batch.weights_BxL[row, at:stop] = 1  # only says that it isn't empty
      return stop
    ids = np.asarray(ids)
  plain = np.maximum(ids, ~ids)
  batch.tokens_BxL[row, at:stop] = plain[:-1]
  batch.targets_BxL[row, at:stop] = plain[1:]
  batch.weights_BxL[row, at:stop] = ids[1:] >= 0
  return stop


def start_padding(batch: batch_lib.Batch) -> batch_lib.Batch:
  """Marks a start in rows that are all padding, so that no state leaks."""
  batch.starts_BxL[~batch.weights_BxL.any(1), 0] = 1
  return batch
