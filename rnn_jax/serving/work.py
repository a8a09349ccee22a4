"""A request within an engine: its job, its rows, and the queue of all jobs."""

import collections
import dataclasses
import threading
import time
from collections.abc import Sequence
from concurrent import futures

import numpy as np

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import text as text_lib
from rnn_jax.serving import constraint
from rnn_jax.serving import prefixes
from rnn_jax.serving import requests
from rnn_jax.serving import served as served_lib


@dataclasses.dataclass(eq=False)
class Job:
  """A request from its submission to its reply.

  Attributes:
    ids, options: what is read, and how it is continued.
    matcher: of a constraint, before the first token; None: there is none.
    adapter: the number of its adapter; 0: the model itself.
    handle: of who waits.
    submitted: when, in seconds of time.monotonic.
    root: the key of the state that the ids follow (reading.py).
    base: that state; None before the reading begins.
    read: the state after the prompt, and `key` its key; None until it is read.
    placed: completions that have, or had, a slot.
    completions: the finished ones, None in place of others.
    cached_tokens: of the prompt, whose state was stored.
    timing: as in the reply.
  """

  ids: np.ndarray
  options: requests.Options
  matcher: constraint.Matcher | None
  adapter: int
  handle: requests.Handle = dataclasses.field(default_factory=requests.Handle)
  submitted: float = 0.0
  root: bytes = b''
  base: prefixes.Entry | None = None
  read: prefixes.Entry | None = None
  key: bytes = b''
  placed: int = 0
  cached_tokens: int = 0
  timing: requests.Timing = dataclasses.field(default_factory=requests.Timing)

  def __post_init__(self) -> None:
    self.completions: list[text_lib.Completion | None]
    self.completions = [None] * self.options.n

  def seconds(self) -> float:
    """Returns the seconds since the submission."""
    return time.monotonic() - self.submitted

  def early_end(self) -> str:
    """Returns why the request ends before its time; '' if it doesn't."""
    if self.handle.cancelled:
      return 'cancelled'
    late = self.options.deadline_seconds
    return 'deadline' if late is not None and self.seconds() > late else ''

  def next_row(self, tokenizer: tokenizer_lib.Tokenizer) -> 'Row':
    """Returns the row of the next completion."""
    self.placed += 1
    return Row(self, self.placed - 1, tokenizer)

  @property
  def done(self) -> bool:
    """Whether all completions are finished."""
    return None not in self.completions

  def text_ids(self, choice: int) -> np.ndarray:
    """Returns the ids of the prompt and of a finished completion."""
    completion = self.completions[choice]
    assert completion is not None
    return np.concatenate([self.ids, np.array(completion.tokens, np.int32)])


class Row(text_lib.Row):
  """A completion that is being made.

  Attributes:
    job, choice: whose it is.
    ended: whether it gets no more tokens.
    matcher: of a constraint, or None.
  """

  def __init__(
    self, job: Job, choice: int, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    super().__init__(tokenizer, job.options)
    self.job = job
    self.choice = choice
    self.matcher = job.matcher.copy() if job.matcher else None
    self.ended = False

  def records(
    self,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    best: Sequence[tuple[tuple[int, float], ...]],
  ) -> tuple[requests.Token, ...]:
    """Writes tokens up to a stop string. Returns the records of those.

    Raises:
      RuntimeError: a token doesn't follow the constraint.
    """
    made = []
    for n, token in enumerate(tokens):
      self.write(tokens[n : n + 1], logprobs[n : n + 1])
      others = best[n] if best else ()
      text = self.new_text()
      made.append(requests.Token(self.choice, token, text, logprobs[n], others))
      if self.reason == 'stop':
        break
    if self.matcher is not None:
      self.matcher.read([record.id for record in made])
    return (*made,)


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
    self._queue: collections.deque[Job] = collections.deque()
    self._live: set[Job] = set()
    self._reloads: collections.deque[Reload] = collections.deque()
    self._ended: collections.Counter[str] = collections.Counter()

  def submit(self, jobs: Sequence[Job]) -> None:
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
  def live(self) -> list[Job]:
    """The jobs that haven't ended."""
    with self._changed:
      return [*self._live]

  @property
  def ended(self) -> dict[str, int]:
    """How many completions ended, by reason."""
    with self._changed:
      return dict(self._ended)

  def take(self) -> Job | None:
    """Returns the next job; None: there is none, or it waits for a reload."""
    with self._changed:
      if self._reloads or not self._queue:
        return None
      return self._queue.popleft()

  def take_reload(self) -> Reload:
    """Returns the next model, and the future of its reload."""
    with self._changed:
      return self._reloads.popleft()

  def withdraw(self, job: Job) -> None:
    """Takes a job from the queue, if it is there."""
    with self._changed:
      if job in self._queue:
        self._queue.remove(job)

  def count(self, reason: str) -> None:
    """Counts the end of a completion."""
    with self._changed:
      self._ended[reason] += 1

  def leave(self, job: Job) -> None:
    """Forgets a job that has ended."""
    with self._changed:
      self._live.discard(job)

  def cancel_reloads(self) -> None:
    """Cancels those that wait."""
    for _, done in self._reloads:
      done.cancel()
