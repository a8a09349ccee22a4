"""Streams: each row is a lane that reads one segment of text after another.

A batch is the next window of every lane, so that a state carried from batch
to batch has seen all of the segment so far. A lane whose segment ends takes
the next one within the window.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import Self

import grain
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data import loader
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching.layouts import base

lengths = base.longest


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  # Keep the state between windows; only this layout makes it an option.
  carry_state: bool = False  # type: ignore[misc]
  # Tokens of a segment, which one row reads in sequence.
  segment_tokens: int = config_lib.option(16384, least=1)

  cuts_documents: ClassVar[bool] = True
  restarts: ClassVar[bool] = True
  pads: ClassVar[bool] = False

  def heldout(self, evaluate: config_lib.Evaluate) -> Self:
    """Returns a copy for a held-out pass."""
    return dataclasses.replace(
      super().heldout(evaluate),
      segment_tokens=evaluate.segment_tokens or self.segment_tokens,
    )

  def window_length(self) -> int:
    """Returns the tokens of a segment, which a lane reads to its end."""
    return self.segment_tokens


def make(
  examples: loader.Loader,
  shapes: tuple[tuple[int, int], ...],
  data: Config,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches; the arguments are those of the package's `make`."""
  del seed, corpus
  return Stream(examples, shapes[0], data.carry_state)


@dataclasses.dataclass
class Lane:
  """Where a lane is in its segment.

  Attributes:
    position: of the segment in the order of examples; -1: none yet.
    done: tokens of it that were predicted.
    ids: of the segment.
  """

  position: int = -1
  done: int = 0
  ids: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(1, np.int32)
  )

  @property
  def left(self) -> int:
    """The number of tokens still to predict."""
    return len(self.ids) - 1 - self.done


class Stream(grain.DatasetIterator):
  """Batches of one shape, (lanes, length)."""

  def __init__(
    self, examples: loader.Loader, shape: tuple[int, int], carry_state: bool
  ) -> None:
    super().__init__(examples)
    self._examples = examples
    self._length = shape[1]
    self._carry_state = carry_state
    self._lanes = [Lane() for _ in range(shape[0])]

  def __next__(self) -> batch_lib.Batch:
    batch = rows_lib.blank(len(self._lanes), self._length)
    filled = [self._fill(batch, n, lane) for n, lane in enumerate(self._lanes)]
    if not any(filled):
      raise StopIteration
    if not self._carry_state:
      batch.starts_BxL[:, 0] = 1
    return rows_lib.start_padding(batch)

  def get_state(self) -> dict[str, Any]:
    return {
      'examples': self._examples.get_state(),
      'lanes': [[lane.position, lane.done] for lane in self._lanes],
    }

  def set_state(self, state: dict[str, Any]) -> None:
    self._examples.set_state(state['examples'])
    self._lanes = [
      Lane(position, done, self._examples.make(position))
      if position >= 0
      else Lane()
      for position, done in state['lanes']
    ]

  def _fill(self, batch, row, lane):
    """Writes a lane's next window; returns the steps that it has."""
    at = 0
    while at < self._length:
      if lane.left <= 0 and not self._take(lane):
        break
      batch.starts_BxL[row, at] |= lane.done == 0
      stop = min(lane.done + self._length - at, len(lane.ids) - 1)
      ids = lane.ids[lane.done : stop + 1]
      at = rows_lib.write(batch, row, at, ids)
      lane.done = stop
    return at

  def _take(self, lane):
    """Gives a lane the next segment; returns False if none is left."""
    for position, ids in self._examples:
      if len(ids) > 1:
        lane.position, lane.done, lane.ids = position, 0, ids
        return True
    return False
