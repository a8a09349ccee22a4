"""What other threads hand to an engine's: requests, reloads, and its end."""

import collections
import threading
import time
from collections.abc import Sequence
from concurrent import futures

from rnn_jax.serving import requests
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import work

Reload = tuple[served_lib.Served, futures.Future]


class Intake:
  """A queue of jobs, and the jobs that haven't ended. Thread-safe.

  Attributes:
    closed: whether it takes no more.
    submitted: how many jobs it took.
  """

  def __init__(self, most: int) -> None:
    """Takes how many jobs may wait."""
    self.closed = False
    self.submitted = 0
    self._most = most
    self._changed = threading.Condition()
    self._queue: collections.deque[work.Job] = collections.deque()
    self._live: set[work.Job] = set()
    self._reloads: collections.deque[Reload] = collections.deque()
    self._ended: collections.Counter[str] = collections.Counter()

  def submit(self, jobs: Sequence[work.Job]) -> None:
    """Queues jobs, all or none.

    Raises:
      QueueFullError: too many wait.
      ClosedError: it takes no more.
    """
    with self._changed:
      if self.closed:
        raise requests.ClosedError('the engine is closed')
      if len(self._queue) + len(jobs) > self._most:
        raise requests.QueueFullError(
          f'{len(self._queue)} requests wait, and {self._most} may: try again '
          'later'
        )
      for job in jobs:
        job.submitted = time.monotonic()
      self._queue.extend(jobs)
      self._live.update(jobs)
      self.submitted += len(jobs)
      self._changed.notify_all()

  def reload(self, served: served_lib.Served) -> futures.Future:
    """Queues another model. Returns a future that is done when it serves."""
    done: futures.Future = futures.Future()
    with self._changed:
      self._reloads.append((served, done))
      self._changed.notify_all()
    return done

  def close(self) -> None:
    """Takes no more."""
    with self._changed:
      self.closed = True
      self._changed.notify_all()

  def wait(self, seconds: float) -> None:
    """Waits until there is something to do, for so long at most."""
    with self._changed:
      if not (self._queue or self._reloads or self.closed):
        self._changed.wait(seconds)

  # For the thread that makes the steps.

  @property
  def waiting(self) -> int:
    """How many jobs are in the queue."""
    return len(self._queue)

  @property
  def reloading(self) -> bool:
    """Whether another model waits."""
    return bool(self._reloads)

  @property
  def live(self) -> list[work.Job]:
    """The jobs that haven't ended."""
    with self._changed:
      return [*self._live]

  @property
  def ended(self) -> dict[str, int]:
    """How many completions ended, by reason."""
    with self._changed:
      return dict(self._ended)

  def take(self) -> work.Job | None:
    """Returns the next job; None: there is none, or it waits for a reload."""
    with self._changed:
      if self._reloads or not self._queue:
        return None
      return self._queue.popleft()

  def take_reload(self) -> Reload:
    """Returns the next model, and the future of its reload."""
    with self._changed:
      return self._reloads.popleft()

  def withdraw(self, job: work.Job) -> None:
    """Takes a job from the queue, if it is there."""
    with self._changed:
      if job in self._queue:
        self._queue.remove(job)

  def count(self, reason: str) -> None:
    """Counts the end of a completion."""
    with self._changed:
      self._ended[reason] += 1

  def leave(self, job: work.Job) -> None:
    """Forgets a job that has ended."""
    with self._changed:
      self._live.discard(job)

  def cancel_reloads(self) -> None:
    """Cancels those that wait."""
    for _, done in self._reloads:
      done.cancel()
