"""Serves streams of series: readings come in, forecasts go out.

    streams = Streams(forecaster, digest, Options(), store)
    with streams.running():
      streams.put(key, series).result()
      answer = streams.read(key, None, [121.5]).result()

States are rows of one array. A tick takes the next job of each stream that has
one, reads all their readings together (inference/series_rows.py), writes them
to the store in one transaction, and answers: what was answered is on the disk.
A stream's forecasts have the bits of its series read from the start, whatever
else is served. Long histories are read in parts, one each tick.

One thread makes the ticks; all but `step` may be called from any thread.
"""

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import panel
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import series_rows
from rnn_jax.serving import records
from rnn_jax.serving import requests
from rnn_jax.serving import states
from rnn_jax.serving import stream_bytes
from rnn_jax.serving import stream_store
from rnn_jax.serving import stream_times

ROWS = 1024  # of a tick, at most
NAP = 0.5  # seconds after which an idle thread looks again
Key = stream_store.Key


class UnknownStreamError(errors.InputError):
  """The owner has no stream of this id."""


class OutdatedStreamError(errors.InputError):
  """A stream's state is damaged, or of another model."""


@dataclasses.dataclass(frozen=True)
class Options:
  """How streams are served.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  streams: int = 4096
  queue: int = 8192  # requests that may wait
  readings: int = 100_000  # of a request, missing ones included

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if value < 1:
        errors.refuse(field.name, value, 'give 1 or more')


class Answer(NamedTuple):
  """A stream after a request, and how many readings that one added."""

  stream: forecast_lib.Stream
  added: int


@dataclasses.dataclass(frozen=True)
class Stats:
  """What is served now, and was since the start."""

  streams: int
  queued: int
  readings: int
  ticks: int


class _Entry(NamedTuple):
  """A stream that is served: its slot, and its readings since it was kept."""

  stream: forecast_lib.Stream
  slot: int
  journal: int


class _Row(NamedTuple):
  """What a job's stream becomes in a tick: row `n` of its arrays."""

  job: '_Job'
  stream: forecast_lib.Stream
  part_NxT: np.ndarray
  n: int


@dataclasses.dataclass(eq=False)
class _Job:
  """What a stream is asked: one of its kinds.

  Attributes:
    key: of the stream.
    series: that begins it, or None.
    given: times, readings and what comes with them, that follow; or None.
    done: gets the answer.
    stream: what it has become so far, without its carry.
    carry: of a new stream; others have a slot.
    rest_NxT: what is still to be read; None: the job hasn't begun.
    added: how many were read.
  """

  key: Key
  series: panel.Series | None = None
  given: tuple[Any, Sequence[Any], stream_times.Besides] | None = None
  done: futures.Future = dataclasses.field(default_factory=futures.Future)
  stream: Any = None
  carry: Any = None
  rest_NxT: Any = None
  added: int = 0

  @property
  def begins(self) -> bool:
    """Whether it begins a stream."""
    return self.series is not None


class Streams:
  """See the module's docstring.

  Args:
    model: forecasts.
    digest: of the model; a stream of another one isn't continued.
    options: how it is served.
    store: of streams; None: they end with the process.
  """

  def __init__(
    self,
    model: forecast_lib.Forecaster,
    digest: str,
    options: Options = Options(),  # noqa: B008, frozen
    store: stream_store.Store | None = None,
  ) -> None:
    self.model, self.options = model, options
    self._digest, self._store = digest, store
    self._reader = model.reader
    self._entries: dict[Key, _Entry] = {}
    self._lost: dict[Key, str] = {}  # why a stream isn't served
    self._new: set[Key] = set()  # that are being begun
    self._carry = self._reader.take(self._reader.fresh, np.array([0]))
    self._free = [0]  # slots
    self._changed = threading.Condition(threading.RLock())
    self._jobs: collections.OrderedDict[Key, collections.deque[_Job]]
    self._jobs = collections.OrderedDict()
    self._queued = self._readings = self._ticks = 0
    self._closed = self._ended = False
    self._thread: threading.Thread | None = None

  # What any thread may call.

  def put(self, key: Key, series: panel.Series) -> futures.Future[Answer]:
    """Begins a stream, in place of one of this key.

    Raises:
      InputError: it has no reading, or one without a logarithm.
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    job = _Job(key, series, stream=_without_carry(self.model.empty(series)))
    job.carry, job.rest_NxT = self._reader.fresh, series.values_NxT
    return self._submit(job)

  def read(
    self,
    key: Key,
    times: Sequence[Any] | None,
    readings: Sequence[forecast_lib.Reading],
    besides: stream_times.Besides = stream_times.NOTHING,
  ) -> futures.Future[Answer]:
    """Reads what follows; readings that the stream has are skipped.

    The future raises UnknownStreamError, OutdatedStreamError, or as
    `stream_times.following`; UnavailableError: the stream hasn't read them.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    return self._submit(_Job(key, given=(times, readings, besides)))

  def delete(self, key: Key) -> futures.Future[None]:
    """Removes a stream; the future raises UnknownStreamError.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    return self._submit(_Job(key))

  def get(self, key: Key) -> forecast_lib.Stream:
    """Returns a stream, with its carry.

    Raises:
      UnknownStreamError: there is none.
      OutdatedStreamError: its state can't be used.
    """
    with self._changed:
      return self._with_carry(self._find(key))

  def about(self, key: Key) -> forecast_lib.Stream:
    """Returns a stream without its carry. Raises as `get`."""
    return self._find(key).stream

  def ids(self, owner: str) -> list[str]:
    """Returns the ids of an owner's streams, those that can't be used too."""
    keys = [*self._entries, *self._lost]
    return sorted(name for own, name in keys if own == owner)

  def stats(self) -> Stats:
    """Returns the statistics."""
    return Stats(len(self._entries), self._queued, self._readings, self._ticks)

  def _submit(self, job):
    with self._changed:
      if self._closed:
        raise requests.ClosedError('the server is stopping')
      if self._queued >= self.options.queue:
        raise requests.QueueFullError(
          f'{self._queued} requests wait, as many as may: try again later'
        )
      job.done.set_running_or_notify_cancel()  # whoever asked may leave
      self._jobs.setdefault(job.key, collections.deque()).append(job)
      self._queued += 1
      self._changed.notify_all()
    return job.done

  def _find(self, key):
    entry = self._entries.get(key)
    if entry is not None:
      return entry
    if why := self._lost.get(key):
      raise OutdatedStreamError(f'stream={key[1]!r}: {why}')
    raise UnknownStreamError(
      f'stream={key[1]!r}: there is no such stream: begin it with PUT and its '
      'history; GET /v1/streams lists yours'
    )

  def _with_carry(self, entry):
    carry = self._reader.take(self._carry, np.array([entry.slot]))
    return entry.stream._replace(carry=carry)

  @property
  def state_bytes(self) -> int:
    """The size of a stream's state."""
    return sum(x.nbytes for x in jax.tree.leaves(self._reader.fresh))

  def card(self) -> dict[str, Any]:
    """Returns the forecasts as clients get them."""
    model = self.model
    return {
      'frequency': str(model.frequency) if model.frequency.unit else None,
      'horizon': model.horizon,
      'quantiles': [*model.levels],
      'window': model.reader.model.sizes.window,
      'targets': [*model.targets],
      'covariates': model.covariates.described,
    }

  # What runs them.

  @contextlib.contextmanager
  def running(self, drain_seconds: float = 30.0) -> Iterator['Streams']:
    """Serves in a thread of its own; ends at the end."""
    self.start()
    try:
      yield self
    finally:
      self.close(drain_seconds)

  def start(self) -> None:
    """Compiles the programs, reads the store and serves, until `close`."""
    most = min(self.options.streams, series_rows.WIDTHS[-1])
    for _ in self._reader.parts(most):  # compiled and compared
      pass
    self._restore()
    self._thread = threading.Thread(
      target=self._run, name='streams', daemon=True
    )
    self._thread.start()

  def close(self, drain_seconds: float = 30.0) -> None:
    """Takes no more requests, and returns when those it has are answered.

    After `drain_seconds` the others fail.
    """
    with self._changed:
      self._closed = True
      self._changed.notify_all()
    if self._thread is not None:
      self._thread.join(drain_seconds)
      self._ended = True
      self._thread.join()
    self._fail([job for jobs in self._jobs.values() for job in jobs])
    if self._store is not None:
      self._store.close()

  def _fail(self, jobs):
    for job in jobs:
      self._end(job, requests.ClosedError('the server has ended'))

  def _run(self):
    while not self._ended:
      if not self.step():
        with self._changed:
          if self._closed and not self._jobs:
            return
          if not self._jobs:
            self._changed.wait(NAP)

  def _restore(self):
    if self._store is None:
      return
    found = []
    like = stream_bytes.like(self.model)
    for kept in self._store.read():
      if kept.model != self._digest:
        self._lost[kept.key] = (
          'its state is of other parameters: begin it again with its history'
        )
      elif (stream := stream_bytes.load(kept.state, like)) is None:
        self._lost[kept.key] = (
          'its state is damaged: begin it again with its history'
        )
      else:
        stream, rest_NxT = stream_bytes.replay(stream, kept.parts)
        found.append((kept.key, stream, rest_NxT))
    for first in range(0, len(found), ROWS):
      part = found[first : first + ROWS]
      keys, streams, rests = zip(*part, strict=True)
      streams = self.model.read_all(streams, rests)
      slots = self._allot(len(part))
      for key, stream, rest_NxT, slot in zip(
        keys, streams, rests, slots, strict=True
      ):
        self._reader.put(self._carry, np.array([slot]), stream.carry)
        entry = _Entry(_without_carry(stream), slot, len(rest_NxT))
        self._entries[key] = entry

  def step(self) -> bool:
    """Makes a tick. Returns whether there was anything to do.

    What fails, fails the requests of the tick, and changes no stream.
    """
    jobs = self._next()
    if not jobs:
      return False
    reading = [job for job in jobs if self._begin(job)]
    try:
      self._tick(reading)
    except Exception as error:  # noqa: BLE001, it becomes the answers
      for job in reading:
        if not job.done.done():
          self._end(job, error)
    self._ticks += 1
    return True

  def _next(self):
    """Returns the next job of each stream, of those that wait longest."""
    with self._changed:
      keys = [*self._jobs][:ROWS]
      for key in keys:
        self._jobs.move_to_end(key)
      return [self._jobs[key][0] for key in keys]

  def _begin(self, job):
    """Returns whether a job has readings to read; others have ended then."""
    if job.rest_NxT is not None:
      return True
    try:
      if job.given is None:
        self._remove(job)
        return False
      job.stream, slot, _ = self._find(job.key)
      window_TxW = self._carry.window_BxTxW[slot]
      times, readings, besides = job.given
      job.stream, job.rest_NxT = stream_times.following(
        self.model,
        job.stream,
        window_TxW,
        times,
        readings,
        self.options.readings,
        besides,
      )
      if not len(job.rest_NxT):
        self._end(job, Answer(job.stream, 0))
      return len(job.rest_NxT) > 0
    except Exception as error:  # noqa: BLE001, it becomes the answer
      self._end(job, error)
      return False

  def _remove(self, job):
    if job.key not in self._lost:
      entry = self._find(job.key)
    if self._store is not None:
      self._store.write(self._digest, (), (), [job.key])
    if self._lost.pop(job.key, None) is None:
      del self._entries[job.key]
      self._free.append(entry.slot)
    self._end(job, None)

  def _tick(self, jobs):
    """Reads a part of each job's readings, and answers those that end."""
    # Those with a slot first.
    jobs = sorted(filter(self._has_room, jobs), key=lambda job: job.begins)
    if not jobs:
      return
    slots = [self._entries[job.key].slot for job in jobs if not job.begins]
    carry = self._reader.join(
      [
        self._reader.take(self._carry, np.array(slots, int)),
        *(job.carry for job in jobs if job.begins),
      ]
    )
    parts = [job.rest_NxT[: series_rows.AT_ONCE] for job in jobs]
    before = [job.stream for job in jobs]
    streams, carry = self.model.read_rows(before, carry, parts)
    rows = [
      _Row(job, stream, part_NxT, n)
      for n, (job, stream, part_NxT) in enumerate(
        zip(jobs, streams, parts, strict=True)
      )
    ]
    journals = self._write(rows, carry)
    with self._changed:
      own = np.arange(len(slots))
      old = self._reader.take(carry, own)
      self._reader.put(self._carry, np.array(slots, int), old)
      for row, journal in zip(rows, journals, strict=True):
        self._advance(row, carry, journal)
    for job in jobs:
      if not len(job.rest_NxT):
        self._end(job, Answer(job.stream, job.added))

  def _write(self, rows, carry):
    """Writes rows to the store. Returns how many readings each has there."""
    states, parts, journals = [], [], []
    for job, stream, part_NxT, n in rows:
      journal = len(part_NxT)
      if not job.begins:
        journal += self._entries[job.key].journal
      whole = job.begins or journal > stream_store.JOURNAL
      journals.append(0 if whole else journal)
      if not whole:
        part = stream_bytes.dump_part(job.stream, part_NxT)
        parts.append((job.key, job.stream.count, part))
      elif not job.begins or len(part_NxT) == len(job.rest_NxT):
        own = self._reader.take(carry, np.array([n]))
        state = stream_bytes.dump(stream._replace(carry=own))
        states.append((job.key, state))
    if self._store is not None and (states or parts):
      self._store.write(self._digest, states, parts)
    return journals

  def _advance(self, row, carry, journal):
    """Takes what a job's stream has become."""
    job, stream, part_NxT, n = row
    job.stream, job.rest_NxT = stream, job.rest_NxT[len(part_NxT) :]
    job.added += len(part_NxT)
    self._readings += len(part_NxT)
    if job.begins:
      job.carry = self._reader.take(carry, np.array([n]))
      if len(job.rest_NxT):
        return
      self._lost.pop(job.key, None)
      slot = self._slot(job.key)
      self._reader.put(self._carry, np.array([slot]), job.carry)
    else:
      slot = self._entries[job.key].slot
    self._entries[job.key] = _Entry(stream, slot, journal)

  def _slot(self, key):
    """Returns the slot of a stream, or a free one."""
    entry = self._entries.get(key)
    return self._allot(1)[0] if entry is None else entry.slot

  def _has_room(self, job):
    """Returns whether a job isn't a new stream too many; refuses that."""
    if not job.begins or job.key in self._entries or job.key in self._new:
      return True
    count = len(self._entries) + len(self._new)
    if count < self.options.streams:
      self._new.add(job.key)
      return True
    error = records.QuotaError(
      f'this server has {count:,} streams, as many as it may (--streams): '
      'delete some'
    )
    self._end(job, error)
    return False

  def _allot(self, count):
    """Returns free slots, of which there are made more if need be."""
    while len(self._free) < count:
      size = len(self._carry.x_BxD)
      self._carry = self._reader.join([self._carry] * 2)
      self._free += range(size, 2 * size)
    return [self._free.pop() for _ in range(count)]

  def _end(self, job, result):
    """Answers a job, which is its stream's first."""
    with self._changed:
      self._new.discard(job.key)
      jobs = self._jobs.get(job.key)
      if jobs and jobs[0] is job:
        jobs.popleft()
        self._queued -= 1
        if not jobs:
          del self._jobs[job.key]
    if isinstance(result, BaseException):
      job.done.set_exception(result)
    else:
      job.done.set_result(result)


def _without_carry(stream):
  return stream._replace(carry=None)


def digest(model: forecast_lib.Forecaster) -> str:
  """Returns the digest of all that streams follow from, but their scales."""
  network = model.reader.model
  facts = (
    *(network.config, network.cell_config, network.policy, network.sizes),
    *(network.head_kind, network.levels, network.anchor, network.normalize),
    str(model.frequency),
  )
  return states.digest(model.reader.params, *map(repr, facts))
