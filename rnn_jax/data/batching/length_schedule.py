"""Rows that become longer during training.

Each length in `length_schedule` lasts `length_schedule_epochs` epochs; then
rows have `length`. Each stage has its own examples, buckets and batches, as if
its length were the longest. They end with its last epoch; the next stage
continues with the following epochs.
"""

import dataclasses

from rnn_jax import config


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
