"""Batches in the order of their numbers, made by workers or by this process.

A batch is a function of its number (batching/plan.py), so the iterator's state
is the number of the next one: it resumes at once, anywhere, with any number of
workers. Workers take turns; Grain runs them.
"""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from absl import flags

from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import plan as plan_lib
from rnn_jax.data.store import workers
from rnn_jax.system import host

ENDLESS = 2**62  # batches that workers make
# Arrays of at least this many bytes go through shared memory. What a worker has
# in its pipe must fit there (64 KiB): it doesn't end before the pipe is read.
SHARED = 1024
BUFFERED = 4  # batches of each worker
EACH = 8  # descriptors of a worker: its start, its queues
FIXED = 5 + 12  # of all workers together, and of what else a run opens

Numbered = tuple[int, batch_lib.Batch]
Place = Callable[[batch_lib.Batch], batch_lib.Batch]


class Loader(grain.DatasetIterator[batch_lib.Batch]):
  """Yields batches. With workers they must never end.

  Args:
    batches: by their numbers.
    workers: processes; 0: this one makes them.
    place: puts a batch on its devices; None: nowhere.
  """

  def __init__(
    self,
    batches: plan_lib.Batches,
    workers: int = 0,
    place: Place | None = None,
  ) -> None:
    super().__init__()
    self._batches = batches
    self._workers = workers
    self._place = place
    self._next = 0
    self._made: Iterator[Numbered] | None = None
    self._processes: grain.DatasetIterator | None = None

  def __next__(self) -> batch_lib.Batch:
    self._assert_not_closed()
    if self._made is None:
      self._made = self._start()
    number, batch = next(self._made)
    self._next = number + 1
    return batch if self._place is None else self._place(batch)

  def get_state(self) -> dict[str, Any]:
    return {'batch': self._next}

  def set_state(self, state: dict[str, Any]) -> None:
    self._stop()
    self._next = state['batch']

  def close(self) -> None:
    self._stop()
    super().close()

  def _start(self):
    if not self._workers:
      numbers = self._batches.numbers(self._next)
      return ((number, self._batches(number)) for number in numbers)
    host.check_descriptors(
      FIXED + self._workers * EACH,
      f'data.workers={self._workers}',
      ', or give data.workers=0',
    )
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()  # Grain reads flags; scripts have none.
    self._processes = iter(self._by_workers())
    return map(_copied, self._processes)

  def _by_workers(self):
    made = grain.MapDataset.range(ENDLESS).map(_From(self._batches, self._next))
    # Batches are prefetched as a whole: no threads within a worker.
    no_threads = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    queued = grain.experimental.WithOptionsIterDataset(
      made.to_iter_dataset(no_threads),
      grain.experimental.DatasetOptions(min_shm_size=SHARED),
    )
    return queued.mp_prefetch(
      grain.MultiprocessingOptions(
        num_workers=self._workers, per_worker_buffer_size=BUFFERED
      ),
      worker_init_fn=_follow_parent,
    )

  def _stop(self):
    if self._processes is not None:
      self._processes.close()
    self._processes = self._made = None


class _From:
  """The map from 0, 1, ... to the batches from a number on, with numbers.

  A worker asks for every `workers`-th, in turn.
  """

  def __init__(self, batches: plan_lib.Batches, first: int) -> None:
    self._batches = batches
    self._first = first
    self._numbers: Iterator[int] | None = None
    self._passed = 0

  def __getstate__(self) -> dict[str, Any]:
    return self.__dict__ | {'_numbers': None, '_passed': 0}

  def __call__(self, index: int) -> Numbered:
    if self._numbers is None or index < self._passed:
      self._numbers, self._passed = self._batches.numbers(self._first), 0
    for number in self._numbers:
      self._passed += 1
      if self._passed > index:
        return number, self._batches(number)
    raise IndexError(index)


def _copied(numbered):
  """Returns the same in memory of this process: shared memory is given back."""
  number, batch = numbered
  arrays = (None if x is None else np.array(x) for x in batch)
  return int(number), batch_lib.Batch(*arrays)


def _follow_parent(worker, count):
  del worker, count
  workers.follow_parent()
