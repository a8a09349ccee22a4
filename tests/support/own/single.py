"""A layout: one example a row, in the order of the examples."""

import dataclasses

import grain

from rnn_jax import config
from rnn_jax.data.batching import rows as rows_lib


@dataclasses.dataclass(frozen=True)
class Config(config.Data):
  """Options of the layout."""

  reversed_rows: bool = False  # the last example first


def lengths(corpus, data, seed):
  """The lengths of rows."""
  del corpus, seed
  return (data.length,)


def make(examples, shapes, data, seed=None, corpus=None):
  """Returns the batches."""
  del seed, corpus
  return Batches(examples, shapes[0], data.reversed_rows)


class Batches(grain.DatasetIterator):
  """Batches of one shape; what an example has beyond its row is left out."""

  def __init__(self, examples, shape, backwards):
    super().__init__(examples)
    self._examples, self._shape = examples, shape
    self._step = -1 if backwards else 1

  def __next__(self):
    batch = rows_lib.blank(*self._shape)
    for row in range(self._shape[0])[:: self._step]:
      try:
        _, ids = next(self._examples)
      except StopIteration:
        if not batch.weights_BxL.any():
          raise
        break
      rows_lib.write(batch, row, 0, ids[: self._shape[1] + 1])
    batch.starts_BxL[:, 0] = 1
    return batch

  def get_state(self):
    return {'examples': self._examples.get_state()}

  def set_state(self, state):
    self._examples.set_state(state['examples'])
