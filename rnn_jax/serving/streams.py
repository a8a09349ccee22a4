"""Serves streams of series: readings come in, forecasts go out.

    streams = Streams(forecaster, digest, Options(), store)
    with streams.running():
      streams.put(key, series).result()
      answer = streams.read(key, None, [121.5]).result()

A tick takes the next job of each stream that has one (stream_jobs.py), reads
all their readings together into the rows of stream_table.py, meanwhile writes
these to the store, and answers: what was answered is on the disk. What a tick
computes of each stream, it computes of all of them at once, in columns.
A stream's forecasts have the bits of its series read from the start, whatever
else is served. Long histories are read in parts, one each tick.

One thread makes the ticks; all but `step` may be called from any thread.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import panel
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import readings as readings_lib
from rnn_jax.inference import series_steps
from rnn_jax.inference import series_streams
from rnn_jax.inference import series_widths
from rnn_jax.serving import records
from rnn_jax.serving import requests
from rnn_jax.serving import states
from rnn_jax.serving import stream_bytes
from rnn_jax.serving import stream_jobs
from rnn_jax.serving import stream_store
from rnn_jax.serving import stream_table
from rnn_jax.serving import stream_times

ROWS = 1024  # of a tick, at most
NAP = 0.5  # seconds after which an idle thread looks again
Key = stream_store.Key


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


@dataclasses.dataclass(frozen=True)
class Stats:
  """What is served now, and was since the start."""

  streams: int
  queued: int
  readings: int
  ticks: int


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
    self._reader = model.reader
    self._table = stream_table.Table(model, digest, options.streams, store)
    self._jobs = stream_jobs.Jobs(options.queue)
    self._readings = self._ticks = 0
    self._ended = False
    self._thread: threading.Thread | None = None

  # What any thread may call.

  def put(
    self, key: Key, series: panel.Series
  ) -> futures.Future[stream_jobs.Answer]:
    """Begins a stream, in place of one of this key.

    Raises:
      InputError: it has no reading, or one without a logarithm.
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    job = stream_jobs.Job(key, futures.Future(), series)
    empty: Any = self.model.empty(series)
    job.stream = empty._replace(carry=None)
    job.rest_NxT = series.values_NxT
    return self._submit_one(job)

  def read(
    self,
    key: Key,
    times: Sequence[Any] | None,
    readings: Sequence[readings_lib.Reading],
    besides: stream_times.Besides = stream_times.NOTHING,
  ) -> futures.Future[stream_jobs.Answer]:
    """Reads what follows; readings that the stream has are skipped.

    The future raises UnknownStreamError, OutdatedStreamError, or as
    `stream_times.following`; UnavailableError: the stream hasn't read them.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    given = times, readings, besides
    return self._submit_one(stream_jobs.Job(key, futures.Future(), given=given))

  def read_all(
    self,
    keys: Sequence[Key],
    times: Sequence[Any] | None,
    readings: Sequence[readings_lib.Reading],
  ) -> futures.Future[list[stream_jobs.Answer | Exception]]:
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
    batch, nothing = stream_jobs.Batch(len(keys)), stream_times.NOTHING
    of_times = [None] * len(keys) if times is None else [[x] for x in times]
    jobs = [
      stream_jobs.Job(
        key, stream_jobs.Place(batch, n), given=(own, (reading,), nothing)
      )
      for n, (key, own, reading) in enumerate(
        zip(keys, of_times, readings, strict=True)
      )
    ]
    self._jobs.submit(jobs)
    return batch.done

  def delete(self, key: Key) -> futures.Future[None]:
    """Removes a stream; the future raises UnknownStreamError.

    Raises:
      QueueFullError: too many requests wait.
      ClosedError: the server is stopping.
    """
    return self._submit_one(stream_jobs.Job(key, futures.Future()))

  def get(self, key: Key) -> series_streams.Stream:
    """Returns a stream, with its carry.

    Raises:
      UnknownStreamError: there is none.
      OutdatedStreamError: its state can't be used.
    """
    return self._table.get(key)

  def about(self, key: Key) -> series_streams.Stream:
    """Returns a stream without its carry. Raises as `get`."""
    return self._table.find(key).stream

  def ids(self, owner: str) -> list[str]:
    """Returns the ids of an owner's streams, those that can't be used too."""
    return self._table.ids(owner)

  def stats(self) -> Stats:
    """Returns the statistics."""
    return Stats(
      len(self._table), self._jobs.count, self._readings, self._ticks
    )

  @property
  def state_bytes(self) -> int:
    """The size of a stream's state."""
    return self._table.state_bytes

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

  def _submit_one(self, job):
    job.done.set_running_or_notify_cancel()  # whoever asked may leave
    self._jobs.submit([job])
    return job.done

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
    most = min(self.options.streams, series_widths.WIDTHS[-1])
    for _ in self._reader.parts(most):  # compiled and compared
      pass
    self._table.restore()
    self._thread = threading.Thread(
      target=self._run, name='streams', daemon=True
    )
    self._thread.start()

  def close(self, drain_seconds: float = 30.0) -> None:
    """Takes no more requests, and returns when those it has are answered.

    After `drain_seconds` the others fail.
    """
    self._jobs.close()
    if self._thread is not None:
      self._thread.join(drain_seconds)
      self._ended = True
      self._thread.join()
    for job in self._jobs.all():
      self._end([(job, requests.ClosedError('the server has ended'))])
    self._table.close()

  def _run(self):
    while not self._ended and (self.step() or self._jobs.wait(NAP)):
      pass

  def step(self) -> bool:
    """Makes a tick. Returns whether there was anything to do.

    What fails, fails the requests of the tick, and changes no stream.
    """
    jobs = self._jobs.next(ROWS)
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
      and job.key in self._table
      and self.model.covariates.like is None
    )

  def _begin_next(self, jobs):
    """Begins the jobs whose reading is simply the next of their stream."""
    if not jobs:
      return
    entries = [self._table.find(job.key) for job in jobs]
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
        self._table.remove(job.key)
        self._end([(job, None)])
        return False
      job.stream, job.slot, _ = self._table.find(job.key)
      window_TxW = self._table.carry.window_BxTxW[job.slot]
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
        self._end([(job, stream_jobs.Answer(job.stream, 0))])
      return len(job.rest_NxT) > 0
    except Exception as error:  # noqa: BLE001, it becomes the answer
      self._end([(job, error)])
      return False

  def _has_room(self, job):
    """Returns whether a job isn't a new stream too many; refuses that."""
    try:
      if job.slot < 0:
        job.slot = self._table.begin(job.key)
      return True
    except records.QuotaError as error:
      self._end([(job, error)])
      return False

  def _tick(self, jobs):
    """Reads a part of each job's readings, and answers those that end."""
    slots_B = np.array([job.slot for job in jobs])
    parts = [job.rest_NxT[: series_steps.AT_ONCE] for job in jobs]
    journals = [*map(self._journal, jobs, parts)]
    # Readings are written while the model reads them.
    streams, rows = self.model.read_rows(
      [job.stream for job in jobs],
      self._table.carry,
      parts,
      slots_B,
      lambda: self._write_parts(jobs, parts, journals),
    )
    for job, stream, part_NxT in zip(jobs, streams, parts, strict=True):
      job.stream, job.rest_NxT = stream, job.rest_NxT[len(part_NxT) :]
      job.added += len(part_NxT)
    self._write_states(jobs, journals, rows)
    served = {
      job.key: stream_table.Entry(job.stream, job.slot, journal)
      for job, journal in zip(jobs, journals, strict=True)
      if not (job.begins and len(job.rest_NxT))
    }
    self._table.put(slots_B, rows, served)
    self._readings += sum(map(len, parts))
    self._end(
      [
        (job, stream_jobs.Answer(job.stream, job.added))
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
    journal = self._table.find(job.key).journal + len(part_NxT)
    return journal if journal <= stream_store.JOURNAL else 0

  def _write_parts(self, jobs, parts, journals):
    self._table.write(
      parts=[
        (
          job.key,
          job.stream.count,
          stream_bytes.dump_part(job.stream, part_NxT),
        )
        for job, part_NxT, journal in zip(jobs, parts, journals, strict=True)
        if journal
      ]
    )

  def _write_states(self, jobs, journals, rows):
    self._table.write(
      [
        (job.key, self._state(job.stream, rows, n))
        for n, (job, journal) in enumerate(zip(jobs, journals, strict=True))
        if not journal and not (job.begins and len(job.rest_NxT))
      ]
    )

  def _state(self, stream, rows, n):
    carry = self._reader.row(rows, n)
    return stream_bytes.dump(stream._replace(carry=carry))

  def _end(self, answers):
    """Answers jobs, each of which is its stream's first."""
    for job, answer in answers:
      if job.begins and job.slot >= 0:
        self._table.end(job.key, job.slot, isinstance(answer, BaseException))
    self._jobs.end(answers)


def digest(model: series_streams.StreamReader) -> str:
  """Returns the digest of all that streams follow from, but their scales."""
  network = model.reader.model
  facts = (
    *(network.config, network.cell_config, network.policy, network.sizes),
    *(network.head_kind, network.levels, network.anchor, network.normalize),
    str(model.frequency),
  )
  return states.digest(model.reader.params, *map(repr, facts))
