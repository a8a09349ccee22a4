"""Streams of series that outlive a server: an SQLite file of its folder.

    streams    of each the state after its first readings
    parts      what it has read since, up to JOURNAL readings; then its state is
               kept in their place

Both are bytes (stream_bytes.py). A reading is on the disk before it is
answered; one that the model failed to read may be, too. One server has the
folder's streams at a time.
"""

import fcntl
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple
from typing import Protocol

from rnn_jax import errors
from rnn_jax.inference import series_steps
from rnn_jax.serving import database

JOURNAL = series_steps.AT_ONCE  # readings, which one call reads again
SCHEMA = """
create table if not exists streams (
  owner text not null, id text not null, model text not null,
  state blob not null, primary key (owner, id)) strict;
create table if not exists parts (
  owner text not null, id text not null, place integer not null,
  part blob not null, primary key (owner, id, place),
  foreign key (owner, id) references streams on delete cascade)
  strict, without rowid;
"""
Key = tuple[str, str]  # (owner, id)


class Kept(NamedTuple):
  """A stream as it was kept.

  Attributes:
    key: its owner and its id.
    model: the digest of the model that made it.
    state: of stream_bytes.dump.
    parts: what it has read since, of stream_bytes.dump_part.
  """

  key: Key
  model: str
  state: bytes
  parts: list[bytes]


class Store(Protocol):
  """Where streams are kept. All methods may be called from any thread."""

  def write(
    self,
    model: str,
    states: Iterable[tuple[Key, bytes]],
    parts: Iterable[tuple[Key, int, bytes]],
    removed: Iterable[Key] = (),
  ) -> None:
    """Writes what streams have become, all of it or nothing.

    Args:
      model: the digest of the model.
      states: streams of which the state is kept, new ones or not; parts before
        it are forgotten.
      parts: of others, what is read from a place on, in place of what was
        written of that place.
      removed: the keys of streams that are removed.

    Raises:
      UnavailableError: the store is full, or fails.
    """

  def read(self) -> Iterator[Kept]:
    """Yields all streams."""

  def close(self) -> None:
    """Lets go of files and connections."""


class StreamStore:
  """See the module's docstring, and Store.

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
    states: Iterable[tuple[Key, bytes]],
    parts: Iterable[tuple[Key, int, bytes]],
    removed: Iterable[Key] = (),
  ) -> None:
    """See Store."""
    rows = [(*key, model, state) for key, state in states]
    with self._database.transaction() as database:
      database.executemany(
        'delete from streams where owner = ? and id = ?', removed
      )
      database.executemany(
        'insert or replace into streams values (?, ?, ?, ?)', rows
      )
      database.executemany(
        'delete from parts where owner = ? and id = ?',
        [row[:2] for row in rows],
      )
      database.executemany(
        'insert or replace into parts values (?, ?, ?, ?)',
        [(*key, place, part) for key, place, part in parts],
      )

  def read(self) -> Iterator[Kept]:
    """See Store."""
    with self._database.transaction() as database:
      rows = database.execute('select * from streams').fetchall()
      parts: dict[Key, list[bytes]] = {}
      for owner, name, part in database.execute(
        'select owner, id, part from parts order by owner, id, place'
      ):
        parts.setdefault((owner, name), []).append(part)
    for owner, name, model, state in rows:
      key = owner, name
      yield Kept(key, model, state, parts.get(key, []))

  def close(self) -> None:
    """See Store."""
    self._database.close()
    self._lock.close()
