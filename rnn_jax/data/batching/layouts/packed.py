"""Packing: several examples share a row; `starts` separates them.

An example goes to the first row with room for it, or to the row where it leaves
the least room ('best'). An example that fits nowhere waits for the next batch,
where it comes first. The iterator's state has only the positions of those
that wait.
"""

import dataclasses
from typing import Any
from typing import ClassVar

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

  # The row for an example: the first with room, or the fullest.
  fit: str = config_lib.option('first', choices=('first', 'best'))

  restarts: ClassVar[bool] = True


def make(
  examples: loader.Loader,
  shapes: tuple[tuple[int, int], ...],
  data: Config,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches; the arguments are those of the package's `make`."""
  del seed, corpus
  return Packed(examples, shapes[0], data.fit)


class Packed(grain.DatasetIterator):
  """Batches of one shape, (rows, length)."""

  def __init__(
    self,
    examples: loader.Loader,
    shape: tuple[int, int],
    fit: str = 'first',
  ) -> None:
    super().__init__(examples)
    self._best = fit == 'best'
    self._examples = examples
    self._rows, self._length = shape
    # (position of the example, number of the row in it, ids)
    self._waiting: list[tuple[int, int, np.ndarray]] = []

  def __next__(self) -> batch_lib.Batch:
    batch = rows_lib.blank(self._rows, self._length)
    filled = np.zeros(self._rows, np.int64)
    waiting, self._waiting = self._waiting, []
    for item in waiting:
      self._place(batch, filled, item)
    # Searching beyond one batch's rows for a fit would gain little.
    while filled.min() < self._length and len(self._waiting) < self._rows:
      try:
        position, ids = next(self._examples)
      except StopIteration:
        break
      for number, row in enumerate(self._cut(ids)):
        self._place(batch, filled, (position, number, row))
    if not filled.any():
      raise StopIteration
    return rows_lib.start_padding(batch)

  def get_state(self) -> dict[str, Any]:
    return {
      'examples': self._examples.get_state(),
      'waiting': [[position, number] for position, number, _ in self._waiting],
    }

  def set_state(self, state: dict[str, Any]) -> None:
    self._examples.set_state(state['examples'])
    self._waiting = [
      (position, number, self._cut(self._examples.make(position))[number])
      for position, number in state['waiting']
    ]

  def _cut(self, ids):
    return rows_lib.cut(ids, self._length)

  def _place(self, batch, filled, item):
    ids = item[-1]
    fits = np.flatnonzero(filled + len(ids) - 1 <= self._length)
    if not len(fits):
      self._waiting.append(item)
      return
    row = int(fits[np.argmax(filled[fits]) if self._best else 0])
    batch.starts_BxL[row, filled[row]] = 1
    filled[row] = rows_lib.write(batch, row, int(filled[row]), ids)
