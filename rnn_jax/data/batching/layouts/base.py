"""Options and functions that several layouts share."""

import dataclasses
from typing import Any
from typing import ClassVar

from rnn_jax import config as config_lib


@dataclasses.dataclass(frozen=True)
class Multiples(config_lib.Data):
  """Options of layouts whose batches are as long as their longest row."""

  # Lengths are rounded up to a multiple of this.
  length_multiple: int = config_lib.option(8, least=1)

  shapes_vary: ClassVar[bool] = True

  def row_lengths(self) -> tuple[int, ...]:
    """Returns all lengths that a batch can have, ascending."""
    multiple = self.length_multiple
    return (*range(multiple, self.length, multiple), self.length)


def longest(corpus: Any, data: config_lib.Data, seed: int) -> tuple[int, ...]:
  """Returns the only length of a layout with one shape."""
  del corpus, seed
  return (data.length,)


def known(corpus: Any, data: Multiples, seed: int) -> tuple[int, ...]:
  """Returns the lengths that a layout's options define."""
  del corpus, seed
  return data.row_lengths()
