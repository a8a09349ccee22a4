"""What streams are asked, and their answers: jobs that wait for their turn.

    jobs.submit([job])
    for job in jobs.next(ROWS):   # the first of each stream that has one
      ...
    jobs.end([(job, answer)])

Those of a stream are done in order, one at a time; streams take turns. All may
be called from any thread, but one only takes jobs and ends them.
"""

import collections
import dataclasses
import threading
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

from rnn_jax.data.series import panel
from rnn_jax.inference import series_streams
from rnn_jax.serving import requests
from rnn_jax.serving import stream_store
from rnn_jax.serving import stream_times

Key = stream_store.Key


class Answer(NamedTuple):
  """A stream after a request, and how many readings that one added."""

  stream: series_streams.Stream
  added: int


class Place(NamedTuple):
  """Where the answer of one of several jobs goes, in place of a future."""

  batch: 'Batch'
  n: int

  def set_result(self, answer: Any) -> None:
    """Takes an answer."""
    self.batch.take(self.n, answer)

  def set_exception(self, error: BaseException) -> None:
    """Takes an error as the answer."""
    self.batch.take(self.n, error)


class Batch:
  """Jobs that are answered together; `done` gets the list of answers."""

  def __init__(self, count: int) -> None:
    self.done: futures.Future[list[Any]] = futures.Future()
    self.done.set_running_or_notify_cancel()
    self._answers: list[Any] = [None] * count
    self._left = count
    if not count:
      self.done.set_result([])

  def take(self, n: int, answer: Any) -> None:
    """Takes an answer; called by one thread."""
    self._answers[n] = answer
    self._left -= 1
    if not self._left:
      self.done.set_result(self._answers)


@dataclasses.dataclass(eq=False, slots=True)
class Job:
  """What a stream is asked: one of its kinds.

  Attributes:
    key: of the stream.
    done: gets the answer.
    series: that begins it, or None.
    given: times, readings and what comes with them, that follow; or None.
    stream: what it has become so far, without its carry.
    slot: of its carry, which a new stream has of its own; -1: none yet.
    rest_NxT: what is still to be read; None: the job hasn't begun.
    added: how many were read.
    ended: whether it was answered.
  """

  key: Key
  done: futures.Future | Place
  series: panel.Series | None = None
  given: tuple[Any, Sequence[Any], stream_times.Besides] | None = None
  stream: Any = None
  slot: int = -1
  rest_NxT: Any = None
  added: int = 0
  ended: bool = False

  @property
  def begins(self) -> bool:
    """Whether it begins a stream."""
    return self.series is not None


class Jobs:
  """See the module's docstring.

  Args:
    most: that may wait.
  """

  def __init__(self, most: int) -> None:
    self._most, self._closed = most, False
    self._changed = threading.Condition()
    self._waiting: collections.OrderedDict[Key, collections.deque[Job]]
    self._waiting = collections.OrderedDict()
    self.count = 0

  def submit(self, jobs: Sequence[Job]) -> None:
    """Adds jobs, all of them or none.

    Raises:
      QueueFullError: too many wait.
      ClosedError: no more are taken.
    """
    with self._changed:
      if self._closed:
        raise requests.ClosedError('the server is stopping')
      if self.count + len(jobs) > self._most:
        raise requests.QueueFullError(
          f'{self.count} requests wait, and {self._most} may: try again later'
        )
      for job in jobs:
        self._waiting.setdefault(job.key, collections.deque()).append(job)
      self.count += len(jobs)
      self._changed.notify_all()

  def next(self, most: int) -> list[Job]:
    """Returns the next job of each stream, of those that wait longest."""
    with self._changed:
      keys = [*self._waiting][:most]
      for key in keys:
        self._waiting.move_to_end(key)
      return [self._waiting[key][0] for key in keys]

  def end(self, answers: Iterable[tuple[Job, Any]]) -> None:
    """Answers jobs, each of which is its stream's first."""
    answers = [*answers]
    with self._changed:
      for job, _ in answers:
        job.ended = True
        jobs = self._waiting.get(job.key)
        if jobs and jobs[0] is job:
          jobs.popleft()
          self.count -= 1
          if not jobs:
            del self._waiting[job.key]
    for job, answer in answers:
      if isinstance(answer, BaseException):
        job.done.set_exception(answer)
      else:
        job.done.set_result(answer)

  def close(self) -> None:
    """Takes no more."""
    with self._changed:
      self._closed = True
      self._changed.notify_all()

  def wait(self, seconds: float) -> bool:
    """Waits for a job, at most so long. Returns whether one may come."""
    with self._changed:
      if not self._waiting and not self._closed:
        self._changed.wait(seconds)
      return bool(self._waiting) or not self._closed

  def all(self) -> list[Job]:
    """Returns all that wait."""
    with self._changed:
      return [job for jobs in self._waiting.values() for job in jobs]
