"""Examples in an order that doesn't depend on who makes them.

Grain's own iterators keep a state for each worker. Here the state is the
position in the order alone, and the workers are started again from there.
"""

import grain
import numpy as np
from absl import flags


class Ordered(grain.DatasetIterator):
  """Yields (position, ids), made by worker processes or by this one."""

  def __init__(self, examples: grain.MapDataset, workers: int):
    super().__init__()
    self._examples = examples
    self._workers = workers
    self._position = 0
    self._source = None

  def __next__(self) -> tuple[int, np.ndarray]:
    self._assert_not_closed()
    if self._position >= len(self._examples):
      raise StopIteration
    if self._source is None:
      self._source = self._start()
    ids = next(self._source)
    self._position += 1
    return self._position - 1, ids

  def make(self, position: int) -> np.ndarray:
    """Makes one example again, here."""
    return self._examples[position]

  def get_state(self) -> dict:
    return {'position': self._position}

  def set_state(self, state: dict) -> None:
    self._stop()
    self._position = state['position']

  def close(self) -> None:
    self._stop()
    super().close()

  def _start(self):
    # The batches behind are prefetched as a whole: no threads here.
    here = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    rest = self._examples[self._position :].to_iter_dataset(here)
    if self._workers and not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()  # Grain reads flags; scripts have none.
    options = grain.MultiprocessingOptions(
      num_workers=self._workers, per_worker_buffer_size=64
    )
    return iter(rest.mp_prefetch(options) if self._workers else rest)

  def _stop(self):
    if self._source is not None:
      self._source.close()
      self._source = None
