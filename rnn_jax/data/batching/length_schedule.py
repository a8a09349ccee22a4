"""Rows that grow longer as training goes on.

Each of the lengths `length_schedule` lasts `length_schedule_epochs` epochs,
then rows have `length` for good. A stage has examples, buckets and batches of
its own, as if its length were the longest: they end with its last epoch, whose
last batches are padded, and the next stage continues with the epochs after it.
"""

import dataclasses

import grain

from rnn_jax import config
from rnn_jax.data.batching import batch as batch_lib


@dataclasses.dataclass(frozen=True)
class Stage:
  """Some epochs of training."""

  data: config.Data
  first: int  # epoch
  end: int | None  # the epoch behind the last one; None: for good


def stages(data: config.Data) -> list[Stage]:
  """Returns the stages in turn; a single one without `length_schedule`."""
  lasts = data.length_schedule_epochs
  growing = [
    Stage(_cut(data, length), n * lasts, (n + 1) * lasts)
    for n, length in enumerate(data.length_schedule)
  ]
  whole = dataclasses.replace(data, length_schedule=())
  return [*growing, Stage(whole, len(growing) * lasts, None)]


def _cut(data, length):
  return dataclasses.replace(data.shortened(length), length_schedule=())


class Growing(grain.DatasetIterator):
  """The batches of one stage behind those of the other."""

  def __init__(self, stages: list[grain.DatasetIterator]):
    super().__init__(stages)
    self._stages = stages
    self._fresh = [stage.get_state() for stage in stages]
    self._stage = 0

  def __next__(self) -> batch_lib.Batch:
    while True:
      try:
        return next(self._stages[self._stage])
      except StopIteration:
        self._rewind(self._stage)
        self._stage += 1

  def get_state(self) -> dict:
    return {
      'stage': self._stage,
      'batches': self._stages[self._stage].get_state(),
    }

  def set_state(self, state: dict) -> None:
    self._rewind(self._stage)
    self._stage = state['stage']
    self._stages[self._stage].set_state(state['batches'])

  def _rewind(self, stage):
    """Ends a stage's workers, so that those of one alone run."""
    self._stages[stage].set_state(self._fresh[stage])
