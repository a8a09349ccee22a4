"""What layouts share: what a plan is made of, its result, options."""

import dataclasses
from collections.abc import Iterable
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import numpy as np

from rnn_jax import config as config_lib

Seed = tuple[int, ...] | None


class Block(NamedTuple):
  """The windows of a block, and how they may be batched.

  Attributes:
    sizes: predictions of each window, in order.
    shapes: the (rows, length) that batches may have, by ascending length.
    data: section `data` of the config.
    seed: of what the layout leaves open; None: nothing is shuffled.
    levels: numbers by which buckets are split, or None.
  """

  sizes: np.ndarray
  shapes: tuple[tuple[int, int], ...]
  data: Any
  seed: Seed = None
  levels: np.ndarray | None = None


class Laid(NamedTuple):
  """Where the windows of a block are, given their sizes: pieces of batches.

  Attributes:
    shape: the number of the shape of each batch.
    batch: of each piece, ascending.
    row, at: where a piece begins.
    item: the window that it is of.
    skip: predictions of the window before the piece.
    size: predictions of the piece.
  """

  shape: np.ndarray
  batch: np.ndarray
  row: np.ndarray
  at: np.ndarray
  item: np.ndarray
  skip: np.ndarray
  size: np.ndarray


@dataclasses.dataclass(frozen=True)
class Multiples(config_lib.Data):
  """Options of layouts whose batches are as long as their longest row."""

  # Lengths are rounded up to a multiple of this.
  length_multiple: int = config_lib.option(8, minimum=1)

  shapes_vary: ClassVar[bool] = True

  def row_lengths(self) -> tuple[int, ...]:
    """Returns all lengths that a batch can have, ascending."""
    multiple = self.length_multiple
    return (*range(multiple, self.length, multiple), self.length)


def one_per_row(
  batches: Iterable[tuple[int, np.ndarray]], sizes: np.ndarray
) -> Laid:
  """Returns the plan of rows with a window each.

  Args:
    batches: (number of its shape, windows of its rows) of each.
    sizes: of all windows.
  """
  batches = [*batches]
  nothing = np.zeros(0, np.int64)
  counts = [len(items) for _, items in batches]
  item = np.concatenate([nothing, *(items for _, items in batches)])
  zero = np.zeros_like(item)
  return Laid(
    np.array([shape for shape, _ in batches], np.int64),
    np.repeat(np.arange(len(batches)), counts),
    np.concatenate([nothing, *map(np.arange, counts)]),
    zero,
    item,
    zero,
    sizes[item],
  )


def longest(corpus: Any, data: config_lib.Data, seed: int) -> tuple[int, ...]:
  """Returns the only length of a layout with one shape."""
  del corpus, seed
  return (data.length,)


def known(corpus: Any, data: Multiples, seed: int) -> tuple[int, ...]:
  """Returns the lengths that a layout's options define."""
  del corpus, seed
  return data.row_lengths()
