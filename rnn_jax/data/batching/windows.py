"""A window is the part of an example that is one row, or a lane's segment.

    reads ids[start : stop - 1]     predicts ids[start + 1 : stop]

An example of more than `size` predictions has a window every `stride` of them,
so with stride = size it predicts each id but the first exactly once; with a
smaller stride windows overlap, and it predicts an id about size / stride times.
With a seed, each epoch begins at another offset, so that windows differ. All is
computed from the column of lengths.
"""

import numpy as np

from rnn_jax.data.batching import shuffle


class Windows:
  """The windows of examples; their number is the same in each epoch.

  Args:
    lengths: ids of each example.
    size: predictions of a window, at most.
    stride: predictions from one window to the next, up to `size`; 0: `size`.
    seed: of the offsets; without one every epoch is the same.
  """

  def __init__(
    self,
    lengths: np.ndarray,
    size: int,
    stride: int = 0,
    seed: int | None = None,
  ) -> None:
    self.size = size
    self._stride = stride or size
    self._seed = seed
    self._lengths = np.asarray(lengths, np.int64)
    beyond = -(-(self._lengths - 1 - size) // self._stride)
    first = 1 if seed is None else 2  # an offset begins with a part of one
    counts = np.where(self._lengths - 1 > size, beyond + first, 1)
    self._ends = np.cumsum(counts)

  def __len__(self) -> int:
    return int(self._ends[-1]) if len(self._ends) else 0

  @property
  def mean(self) -> float:
    """The mean number of predictions of a window, if they don't overlap."""
    return float(np.maximum(self._lengths - 1, 0).sum()) / max(len(self), 1)

  def at(
    self, windows: np.ndarray, epochs: int | np.ndarray = 0
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (example, start, stop) of windows.

    A window with nothing to predict has stop - start < 2.

    Args:
      windows: their numbers.
      epochs: of all of them, or of each.
    """
    example = np.searchsorted(self._ends, windows, side='right')
    length = self._lengths[example]
    number = windows - np.where(example, self._ends[example - 1], 0)
    start = number * self._stride
    if self._seed is not None:
      offset = shuffle.hashed(self._seed, epochs, example)
      start += (offset % np.uint64(self._stride)).astype(np.int64)
      start -= self._stride
    is_cut = length - 1 > self.size
    stop = np.where(is_cut, start + self.size + 1, length)
    start = np.where(is_cut, np.maximum(start, 0), 0)
    return example, start, np.minimum(stop, length)
