"""Examples in an order that doesn't depend on the number of workers.

Grain's own iterators keep a state for each worker. Here the state is only the
position in the order, and the workers restart from it.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from absl import flags

from rnn_jax.data.store import workers
from rnn_jax.system import host

GROUP = 16  # examples that a worker sends at once, as one array
# Arrays of at least this many bytes go through shared memory. What a worker has
# in its pipe must fit there (64 KiB): it doesn't end before the pipe is read.
SHARED = 8192
EACH = 8  # descriptors of a worker: its start, its queues
FIXED = 5 + 12  # of all workers together, and of what else a run opens


class Loader(grain.DatasetIterator):
  """Yields (position, ids), made by worker processes or by this one."""

  def __init__(self, examples: grain.MapDataset, workers: int) -> None:
    super().__init__()
    self._examples = examples
    self._workers = workers
    self._position = 0
    self._groups: grain.DatasetIterator | None = None  # made by workers
    self._stream: Iterator[np.ndarray] | None = None  # of examples

  def __next__(self) -> tuple[int, np.ndarray]:
    self._assert_not_closed()
    if self._position >= len(self._examples):
      raise StopIteration
    if self._stream is None:
      self._stream = self._start()
    ids = next(self._stream)
    self._position += 1
    return self._position - 1, ids

  def make(self, position: int) -> np.ndarray:
    """Makes one example again, in this process."""
    return self._examples[position]

  def get_state(self) -> dict[str, Any]:
    return {'position': self._position}

  def set_state(self, state: dict[str, Any]) -> None:
    self._stop()
    self._position = state['position']

  def close(self) -> None:
    self._stop()
    super().close()

  def _start(self):
    if not self._workers:
      return map(self.make, range(self._position, len(self._examples)))
    host.check_descriptors(
      FIXED + self._workers * EACH,
      f'data.workers={self._workers}',
      ', or give data.workers=0',
    )
    if not flags.FLAGS.is_parsed():
      flags.FLAGS.mark_as_parsed()  # Grain reads flags; scripts have none.
    self._groups = iter(self._from_workers(self._position // GROUP))
    examples = itertools.chain.from_iterable(map(_split_group, self._groups))
    return itertools.islice(examples, self._position % GROUP, None)

  def _from_workers(self, first_group):
    """Returns the groups of examples from `first_group` on."""
    groups = self._examples.batch(GROUP, batch_fn=_join_group)[first_group:]
    # Batches are prefetched as a whole: no threads within a worker.
    no_threads = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    queued = grain.experimental.WithOptionsIterDataset(
      groups.to_iter_dataset(no_threads),
      grain.experimental.DatasetOptions(min_shm_size=SHARED),
    )
    return queued.mp_prefetch(
      grain.MultiprocessingOptions(
        num_workers=self._workers, per_worker_buffer_size=4
      ),
      worker_init_fn=_follow_parent,
    )

  def _stop(self):
    if self._groups is not None:
      self._groups.close()
    self._groups = self._stream = None


def _join_group(examples):
  """Returns one array: the number of examples, their sizes, their ids."""
  sizes = [len(ids) for ids in examples]
  return np.concatenate([[len(sizes)], sizes, *examples]).astype(np.int32)


def _split_group(joined):
  """Returns the examples, copied: shared memory is given back at once."""
  count = int(joined[0])
  ends = np.cumsum(joined[1 : count + 1])[:-1]
  return np.split(np.array(joined[count + 1 :]), ends)


def _follow_parent(worker, count):
  del worker, count
  workers.follow_parent()
