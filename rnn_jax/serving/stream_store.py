"""Streams of series that outlive a server: an SQLite file of its folder.

    streams    of each the state after its first `count` readings
    readings   what it has read since, at most JOURNAL; then its state is kept

A reading is on the disk before it is answered. Read again after the state, the
readings of a stream give the bits that it had (inference/series_rows.py). One
server has the folder's streams at a time.
"""

import fcntl
import hashlib
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np
import safetensors.numpy

from rnn_jax import errors
from rnn_jax.data.series import scaling
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import series_rows
from rnn_jax.serving import database

JOURNAL = series_rows.AT_ONCE  # readings, which one call reads again
SCHEMA = """
create table if not exists streams (
  owner text not null, id text not null, name text not null,
  model text not null, start integer not null, count integer not null,
  location real not null, scale real not null, log integer not null,
  content blob not null, sha256 text not null,
  primary key (owner, id)) strict;
create table if not exists readings (
  owner text not null, id text not null, place integer not null, reading real,
  primary key (owner, id, place),
  foreign key (owner, id) references streams on delete cascade)
  strict, without rowid;
"""
Key = tuple[str, str]  # (owner, id)


class Kept(NamedTuple):
  """A stream as it was kept.

  Attributes:
    key: its owner and its id.
    model: the digest of the model that made it.
    stream: without the forecast, which follows from the readings; None: the
      bytes are damaged.
    readings_N: what it has read since.
  """

  key: Key
  model: str
  stream: forecast_lib.Stream | None
  readings_N: np.ndarray


class StreamStore:
  """See the module's docstring. All methods may be called from any thread.

  Args:
    folder: of the server's states.

  Raises:
    InputError: it can't be used, or another server has its streams.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    self._database = database.Database(folder / 'streams.sqlite', SCHEMA)
    self._database.check('streams')
    self._lock = open(folder / 'streams.lock', 'wb')  # noqa: SIM115
    try:
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
      errors.refuse(
        'store',
        str(folder),
        'another server has its streams: stop that one, or give another folder',
      )

  def write(
    self,
    model: str,
    states: Iterable[tuple[Key, forecast_lib.Stream]],
    readings: Iterable[tuple[Key, int, Sequence[float]]],
    removed: Iterable[Key] = (),
  ) -> None:
    """Writes what streams have become, all of it or nothing.

    Args:
      model: the digest of the model.
      states: streams of which the state is kept, new ones or not; readings
        before them are forgotten.
      readings: of others, what was read from a place on.
      removed: the keys of streams that are removed.

    Raises:
      UnavailableError: the disk is full, or fails.
    """
    rows = []
    for key, stream in states:
      content = _dump(stream.carry)
      digest = hashlib.sha256(content).hexdigest()
      about = stream.name, model, stream.start, stream.count, *stream.scale
      rows.append((*key, *about, content, digest))
    with self._database.transaction() as database:
      database.executemany(
        'delete from streams where owner = ? and id = ?', removed
      )
      places = ', '.join('?' * 11)
      database.executemany(
        f'insert or replace into streams values ({places})', rows
      )
      database.executemany(
        'delete from readings where owner = ? and id = ?',
        [row[:2] for row in rows],
      )
      database.executemany(
        'insert into readings values (?, ?, ?, ?)',
        [
          (*key, place + n, None if np.isnan(reading) else float(reading))
          for key, place, values in readings
          for n, reading in enumerate(values)
        ],
      )

  def read(self, like: series_rows.Carry) -> Iterator[Kept]:
    """Yields all streams.

    Args:
      like: a row, by which the arrays are put together.
    """
    with self._database.transaction() as database:
      rows = database.execute('select * from streams').fetchall()
      journal: dict[Key, list[float]] = {}
      for owner, name, reading in database.execute(
        'select owner, id, reading from readings order by owner, id, place'
      ):
        value = np.nan if reading is None else reading
        journal.setdefault((owner, name), []).append(value)
    for row in rows:
      owner, own, name, model, start, count, loc, scale, log, content, sha = row
      stream = None
      if hashlib.sha256(content).hexdigest() == sha:
        stream = forecast_lib.Stream(
          name,
          start,
          count,
          scaling.Scale(loc, scale, bool(log)),
          _load(content, like),
          forecast_lib.NOTHING,
        )
      key = owner, own
      yield Kept(key, model, stream, np.array(journal.get(key, ())))

  def close(self) -> None:
    """Lets go of the files."""
    self._database.close()
    self._lock.close()


def _dump(carry):
  leaves = jax.tree.leaves(carry)
  return safetensors.numpy.save(
    {f'{n:04}': np.ascontiguousarray(x) for n, x in enumerate(leaves)}
  )


def _load(content: bytes, like: Any) -> Any:
  arrays = safetensors.numpy.load(content)
  leaves = [arrays[name] for name in sorted(arrays)]
  return jax.tree.unflatten(jax.tree.structure(like), leaves)
