"""Serves streams of series: readings come in, forecasts go out.

    streams = Streams(forecaster, digest, Options(), store)
    with streams.running():
      streams.put(key, series).result()
      answer = streams.read(key, None, [121.5]).result()

States are rows of one array. A tick takes the next job of each stream that has
one, reads all their readings together (inference/series_rows.py), meanwhile
writes these to the store, and answers: what was answered is on the disk.
What a tick computes of each stream, it computes of all of them at once, in
columns.
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
from rnn_jax.inference import readings as readings_lib
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


class _Place(NamedTuple):
  """Where the answer of one of several jobs goes, in place of a future."""

  batch: '_Batch'
  n: int

  def set_result(self, answer: Any) -> None:
    self.batch.take(self.n, answer)

  def set_exception(self, error: BaseException) -> None:
    self.batch.take(self.n, error)


class _Batch:
  """Jobs that are answered together; `done` gets the list of answers."""

  def __init__(self, count: int) -> None:
    self.done: futures.Future[list[Any]] = futures.Future()
    self.done.set_running_or_notify_cancel()
    self._answers: list[Any] = [None] * count
    self._left = count

  def take(self, n: int, answer: Any) -> None:
    """Takes an answer; called by one thread."""
    self._answers[n] = answer
    self._left -= 1
    if not self._left:
      self.done.set_result(self._answers)


@dataclasses.dataclass(eq=False, slots=True)
class _Job:
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
  done: futures.Future | _Place
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
    job = _Job(key, futures.Future(), series)
    job.stream = _without_carry(self.model.empty(series))
    job.rest_NxT = series.values_NxT
    return self._submit_one(job)

  def read(
    self,
    key: Key,
    times: Sequence[Any] | None,
    readings: Sequence[readings_lib.Reading],
    besides: stream_times.Besides = stream_times.NOTHING,
  ) -> futures.Future[Answer]:
    """Reads what follows; readings that the stream has are skipped.

    The future raises UnknownStreamError, OutdatedStreamError, or as
    `stream_times.following`; UnavailableError: the stream hasn't read them.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    given = times, readings, besides
    return self._submit_one(_Job(key, futures.Future(), given=given))

  def read_all(
    self,
    keys: Sequence[Key],
    times: Sequence[Any] | None,
    readings: Sequence[readings_lib.Reading],
  ) -> futures.Future[list[Answer | Exception]]:
    """Reads the next reading of each of many streams, as `read` does.

    The future's list has an answer for each, or what `read` would have raised
    of it; it is there when all have read.

    Args:
      keys: of the streams.
      times: of each reading; None: each is the one after the stream's last.
      readings: one of each stream; NaN is missing.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    batch, nothing = _Batch(len(keys)), stream_times.NOTHING
    of_times = [None] * len(keys) if times is None else [[x] for x in times]
    jobs = [
      _Job(key, _Place(batch, n), given=(own, (reading,), nothing))
      for n, (key, own, reading) in enumerate(
        zip(keys, of_times, readings, strict=True)
      )
    ]
    if jobs:
      self._submit(jobs)
    else:
      batch.done.set_result([])
    return batch.done

  def delete(self, key: Key) -> futures.Future[None]:
    """Removes a stream; the future raises UnknownStreamError.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    return self._submit_one(_Job(key, futures.Future()))

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

  def _submit_one(self, job):
    job.done.set_running_or_notify_cancel()  # whoever asked may leave
    self._submit([job])
    return job.done

  def _submit(self, jobs):
    with self._changed:
      if self._closed:
        raise requests.ClosedError('the server is stopping')
      if self._queued + len(jobs) > self.options.queue:
        raise requests.QueueFullError(
          f'{self._queued} requests wait, and {self.options.queue} may: try '
          'again later'
        )
      for job in jobs:
        self._jobs.setdefault(job.key, collections.deque()).append(job)
      self._queued += len(jobs)
      self._changed.notify_all()

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
      self._end([(job, requests.ClosedError('the server has ended'))])

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
      slots = self._allot(len(part))
      carry = self._reader.join([stream.carry for stream in streams])
      streams, rows = self.model.read_rows(streams, carry, rests)
      self._reader.put_parts(self._carry, np.array(slots), rows)
      for key, stream, rest_NxT, slot in zip(
        keys, streams, rests, slots, strict=True
      ):
        entry = _Entry(_without_carry(stream), slot, len(rest_NxT))
        self._entries[key] = entry

  def step(self) -> bool:
    """Makes a tick. Returns whether there was anything to do.

    What fails, fails the requests of the tick, and changes no stream.
    """
    jobs = self._next()
    if not jobs:
      return False
    jobs = [job for job in self._begun(jobs) if self._has_room(job)]
    try:
      if jobs:
        self._tick(jobs)
    except Exception as error:  # noqa: BLE001, it becomes the answers
      self._end([(job, error) for job in jobs if not job.ended])
    self._ticks += 1
    return True

  def _next(self):
    """Returns the next job of each stream, of those that wait longest."""
    with self._changed:
      keys = [*self._jobs][:ROWS]
      for key in keys:
        self._jobs.move_to_end(key)
      return [self._jobs[key][0] for key in keys]

  def _begun(self, jobs):
    """Returns the jobs that have readings to read; others have ended then."""
    self._begin_next([job for job in jobs if self._reads_next(job)])
    return [job for job in jobs if job.rest_NxT is not None or self._begin(job)]

  def _reads_next(self, job):
    """Returns whether a job gives one reading and nothing besides."""
    return (
      job.rest_NxT is None
      and job.given is not None
      and len(job.given[1]) == 1
      and not (job.given[2].known or job.given[2].observed)
      and job.key in self._entries
      and self._entries[job.key].stream.covariates is None
    )

  def _begin_next(self, jobs):
    """Begins the jobs whose reading is simply the next of their stream."""
    if not jobs:
      return
    entries = [self._entries[job.key] for job in jobs]
    given = [job.given for job in jobs]
    try:
      values_BxT, is_next_B = stream_times.next_readings(
        self.model,
        [entry.stream for entry in entries],
        [times if times is None else times[0] for times, _, _ in given],
        [readings[0] for _, readings, _ in given],
      )
    except Exception:  # noqa: BLE001, `_begin` finds out whose it is
      return
    for n in np.flatnonzero(is_next_B).tolist():
      job, entry = jobs[n], entries[n]
      job.stream, job.slot = entry.stream, entry.slot
      job.rest_NxT = values_BxT[n : n + 1]

  def _begin(self, job):
    """Begins another job. Returns whether it has readings to read."""
    try:
      if job.given is None:
        self._remove(job)
        return False
      job.stream, job.slot, _ = self._find(job.key)
      window_TxW = self._carry.window_BxTxW[job.slot]
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
        self._end([(job, Answer(job.stream, 0))])
      return len(job.rest_NxT) > 0
    except Exception as error:  # noqa: BLE001, it becomes the answer
      self._end([(job, error)])
      return False

  def _remove(self, job):
    if job.key not in self._lost:
      entry = self._find(job.key)
    if self._store is not None:
      self._store.write(self._digest, (), (), [job.key])
    if self._lost.pop(job.key, None) is None:
      del self._entries[job.key]
      self._free.append(entry.slot)
    self._end([(job, None)])

  def _tick(self, jobs):
    """Reads a part of each job's readings, and answers those that end."""
    slots_B = np.array([job.slot for job in jobs])
    parts = [job.rest_NxT[: series_rows.AT_ONCE] for job in jobs]
    journals = [*map(self._journal, jobs, parts)]
    # Readings are written while the model reads them.
    streams, rows = self.model.read_rows(
      [job.stream for job in jobs],
      self._carry,
      parts,
      slots_B,
      lambda: self._write_parts(jobs, parts, journals),
    )
    self._write_states(jobs, streams, parts, journals, rows)
    with self._changed:
      self._reader.put_parts(self._carry, slots_B, rows)
      for each in zip(jobs, streams, parts, journals, strict=True):
        self._advance(*each)
    self._end(
      [
        (job, Answer(job.stream, job.added))
        for job in jobs
        if not len(job.rest_NxT)
      ]
    )

  def _journal(self, job, part_NxT):
    """Returns how many readings the store then has after a stream's state.

    0: the state is to be written.
    """
    if job.begins:
      return 0
    journal = self._entries[job.key].journal + len(part_NxT)
    return journal if journal <= stream_store.JOURNAL else 0

  def _write_parts(self, jobs, parts, journals):
    written = [
      (job.key, job.stream.count, stream_bytes.dump_part(job.stream, part_NxT))
      for job, part_NxT, journal in zip(jobs, parts, journals, strict=True)
      if journal
    ]
    if self._store is not None and written:
      self._store.write(self._digest, (), written)

  def _write_states(self, jobs, streams, parts, journals, rows):
    written = [
      (job.key, self._state(stream, rows, n))
      for n, (job, stream) in enumerate(zip(jobs, streams, strict=True))
      if not journals[n]
      and not (job.begins and len(parts[n]) < len(job.rest_NxT))
    ]
    if self._store is not None and written:
      self._store.write(self._digest, written, ())

  def _state(self, stream, rows, n):
    carry = self._reader.row(rows, n)
    return stream_bytes.dump(stream._replace(carry=carry))

  def _advance(self, job, stream, part_NxT, journal):
    """Takes what a job's stream has become."""
    job.stream, job.rest_NxT = stream, job.rest_NxT[len(part_NxT) :]
    job.added += len(part_NxT)
    self._readings += len(part_NxT)
    if job.begins:
      if len(job.rest_NxT):
        return
      self._lost.pop(job.key, None)
      if (old := self._entries.get(job.key)) is not None:
        self._free.append(old.slot)
    self._entries[job.key] = _Entry(stream, job.slot, journal)

  def _has_room(self, job):
    """Returns whether a job isn't a new stream too many; refuses that."""
    if job.slot >= 0:
      return True
    count = len(self._entries) + len(self._new)
    if job.key in self._entries or count < self.options.streams:
      self._new |= {job.key} - self._entries.keys()
      (job.slot,) = self._allot(1)
      self._reader.put(self._carry, np.array([job.slot]), self._reader.fresh)
      return True
    error = records.QuotaError(
      f'this server has {count:,} streams, as many as it may (--streams): '
      'delete some'
    )
    self._end([(job, error)])
    return False

  def _allot(self, count):
    """Returns free slots, of which there are made more if need be."""
    while len(self._free) < count:
      size = len(self._carry.x_BxD)
      self._carry = self._reader.join([self._carry] * 2)
      self._free += range(2 * size - 1, size - 1, -1)  # the first ones first
    return [self._free.pop() for _ in range(count)]

  def _end(self, answers):
    """Answers jobs, each of which is its stream's first."""
    with self._changed:
      for job, answer in answers:
        job.ended = True
        self._new.discard(job.key)
        if job.begins and job.slot >= 0 and isinstance(answer, BaseException):
          self._free.append(job.slot)
        jobs = self._jobs.get(job.key)
        if jobs and jobs[0] is job:
          jobs.popleft()
          self._queued -= 1
          if not jobs:
            del self._jobs[job.key]
    for job, answer in answers:
      if isinstance(answer, BaseException):
        job.done.set_exception(answer)
      else:
        job.done.set_result(answer)


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
