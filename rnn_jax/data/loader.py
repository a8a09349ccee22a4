"""Batches in the order of their numbers, made by workers or by this process.

This process plans them (batching/plan.py), which reads no ids, and whatever
makes them gets the plan of one. So the iterator's state is the number of the
next batch: it resumes at once, anywhere, with any number of workers, which get
the next batch each as they are done with one.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import grain

from rnn_jax.data import workers as workers_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import plan as plan_lib
from rnn_jax.system import host

EACH = 8  # descriptors of a worker: its start, its queues
FIXED = 5 + 12  # of all workers together, and of what else a run opens

Numbered = tuple[int, batch_lib.Batch]
Place = Callable[[batch_lib.Batch], batch_lib.Batch]


class Loader(grain.DatasetIterator[batch_lib.Batch]):
  """Yields batches.

  Args:
    batches: what plans and makes them.
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
    self._pool: workers_lib.Pool | None = None

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
    planned = self._batches.planned(self._next)
    if not self._workers:
      return ((each.number, self._batches.make(each)) for each in planned)
    host.check_descriptors(
      FIXED + self._workers * EACH,
      f'data.workers={self._workers}',
      ', or give data.workers=0',
    )
    prepare = functools.partial(_receive, self._batches)
    self._pool = workers_lib.Pool(self._workers, prepare)
    return self._pool.ordered(_make, planned)

  def _stop(self):
    if self._pool is not None:
      self._pool.close()
    self._pool = self._made = None


RECEIVED: list[plan_lib.Batches] = []  # of a worker, what it makes


def _receive(batches):
  RECEIVED.append(batches)


def _make(planned):
  return planned.number, RECEIVED[0].make(planned)
