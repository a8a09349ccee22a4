"""Batches of pictures: one shape, in the order of the examples."""

import grain

from rnn_jax import config
from rnn_jax.data import batch as batch_lib
from rnn_jax.data import ordered
from rnn_jax.data import pictures


class Batches(grain.DatasetIterator):
  """Batches of so many rows; the last of a pass may hold padding."""

  def __init__(self, examples: ordered.Ordered, rows: int, image: config.Image):
    super().__init__(examples)
    self._examples = examples
    self._rows = rows
    self._image = image

  def __next__(self) -> batch_lib.Batch:
    batch = pictures.blank(self._rows, self._image)
    for row in range(self._rows):
      try:
        _, ids = next(self._examples)
      except StopIteration:
        if not row:
          raise
        break
      pictures.write(batch, row, ids)
    return batch

  def get_state(self) -> dict:
    return {'examples': self._examples.get_state()}

  def set_state(self, state: dict) -> None:
    self._examples.set_state(state['examples'])
