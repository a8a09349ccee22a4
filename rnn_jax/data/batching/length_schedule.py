"""Rows that become longer during training.

Each length in `length_schedule` lasts `length_schedule_epochs` epochs; then
rows have `length`. Each stage has its own examples, buckets and batches, as if
its length were the longest. They end with its last epoch, whose last batches
are padded; the next stage continues with the following epochs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import grain

from rnn_jax import config
from rnn_jax.data.batching import batch as batch_lib


@dataclasses.dataclass(frozen=True)
class Stage:
  """Consecutive epochs with one row length.

  Attributes:
    data: section `data` of the config for these epochs.
    first: the first epoch.
    end: the epoch after the last one; None: it never ends.
  """

  data: config.Data
  first: int
  end: int | None


def stages(data: config.Data) -> list[Stage]:
  """Returns the stages in turn; a single one without `length_schedule`."""
  epochs = data.length_schedule_epochs
  shorter = [
    Stage(_shortened(data, length), n * epochs, (n + 1) * epochs)
    for n, length in enumerate(data.length_schedule)
  ]
  final = dataclasses.replace(data, length_schedule=())
  return [*shorter, Stage(final, len(shorter) * epochs, None)]


def _shortened(data, length):
  return dataclasses.replace(data.shortened(length), length_schedule=())


class StagedBatches(grain.DatasetIterator):
  """The batches of the stages, one stage after the other."""

  def __init__(self, stages: Sequence[grain.DatasetIterator]) -> None:
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

  def get_state(self) -> dict[str, Any]:
    return {
      'stage': self._stage,
      'batches': self._stages[self._stage].get_state(),
    }

  def set_state(self, state: dict[str, Any]) -> None:
    self._rewind(self._stage)
    self._stage = state['stage']
    self._stages[self._stage].set_state(state['batches'])

  def _rewind(self, stage):
    """Ends a stage's workers, so that only one stage's run."""
    self._stages[stage].set_state(self._fresh[stage])
