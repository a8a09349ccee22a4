"""The order of windows in training: each once an epoch, shuffled.

A place is a number from 0 on; `count` of them are an epoch. With a curriculum,
curriculum.Order replaces this order.
"""

import dataclasses

import numpy as np

from rnn_jax.data.batching import shuffle


@dataclasses.dataclass(frozen=True)
class Shuffled:
  """All of range(count), in another order in each epoch."""

  count: int
  seed: int

  def __call__(self, places: np.ndarray) -> np.ndarray:
    """Returns the windows at places."""
    epoch, index = np.divmod(places, self.count)
    return shuffle.permuted(index, self.count, shuffle.key(self.seed, epoch))


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
  """Some windows, in turn, the same in each epoch."""

  windows: np.ndarray

  def __call__(self, places: np.ndarray) -> np.ndarray:
    """Returns the windows at places."""
    return self.windows[places % len(self.windows)]
