"""States in a folder of this machine: an SQLite file.

A state and its record are written in one transaction: a process that is killed
at any time leaves both or neither. Several processes may share the folder.
"""

import contextlib
import dataclasses
import os
import pathlib
import sqlite3
import threading
import time
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.serving import records

COLUMNS = 'id, model, tokens, size, sha256, created'  # of a Record
PRAGMAS = (
  'auto_vacuum = full',  # what is removed frees space on the disk
  'journal_mode = wal',
  'synchronous = full',
  'foreign_keys = on',
)
# Apart, so that a new time of use doesn't write a state again.
SCHEMA = """
create table if not exists states (
  id text primary key, owner text not null, model text not null,
  tokens integer not null, size integer not null, sha256 text not null,
  created real not null, used real not null) strict;
create index if not exists states_by_owner on states (owner, created);
create table if not exists contents (
  id text primary key references states on delete cascade,
  content blob not null) strict;
"""


class FolderStore:
  """States in a folder of this machine. Several processes may share it.

  All methods may be called from several threads. Each raises UnavailableError
  if the place doesn't answer.
  """

  def __init__(self, folder: pathlib.Path, limits: records.Limits) -> None:
    self._limits = limits
    self._lock = threading.Lock()
    path = folder / 'states.sqlite'
    try:
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      if not path.exists():  # SQLite's own files have the mode of this one
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
      self._database = sqlite3.connect(
        path,
        timeout=10,
        check_same_thread=False,
        isolation_level=None,  # transactions begin where the code says so
      )
      for pragma in PRAGMAS:
        self._database.execute(f'pragma {pragma}')
      self._database.executescript(SCHEMA)
      self._check_whole()
      with self._transaction():
        self._remove_old()
    except sqlite3.DatabaseError as error:
      _refuse_place(folder, error)
    except (OSError, records.UnavailableError) as error:
      _refuse_place(folder, error.__cause__ or error)

  def put(
    self, owner: str, content: bytes, tokens: int, model: str
  ) -> records.Record:
    """Keeps a state. Raises QuotaError."""
    record = records.make_record(content, tokens, model)
    with self._transaction() as database:
      self._remove_old()
      row = database.execute(
        'select coalesce(sum(size), 0) from states where owner = ?', (owner,)
      ).fetchone()
      records.check_quota(row[0] + record.size, self._limits)
      database.execute(
        f'insert into states ({COLUMNS}, owner, used) '
        'values (?, ?, ?, ?, ?, ?, ?, ?)',
        (*dataclasses.astuple(record), owner, record.created),
      )
      database.execute(
        'insert into contents values (?, ?)', (record.id, content)
      )
    return record

  def get(self, owner: str, state_id: str) -> tuple[records.Record, bytes]:
    """Returns a state, whole. Raises NotFoundError or DamagedError."""
    with self._transaction() as database:
      record = self._find(owner, state_id)
      database.execute(
        'update states set used = ? where id = ?', (time.time(), state_id)
      )
      (content,) = database.execute(
        'select content from contents where id = ?', (state_id,)
      ).fetchone() or (b'',)
    return record, records.checked(record, content)

  def list(self, owner: str) -> list[records.Record]:
    """Returns the records of an owner, the oldest first."""
    with self._transaction() as database:
      self._remove_old()
      rows = database.execute(
        f'select {COLUMNS} from states where owner = ? order by created, id',
        (owner,),
      ).fetchall()
    return [records.Record(*row) for row in rows]

  def delete(self, owner: str, state_id: str) -> None:
    """Removes a state. Raises NotFoundError."""
    with self._transaction() as database:
      self._find(owner, state_id)
      database.execute('delete from states where id = ?', (state_id,))

  def close(self) -> None:
    """Lets go of files and connections."""
    with self._lock:
      self._database.close()

  @contextlib.contextmanager
  def _transaction(self) -> Iterator[sqlite3.Connection]:
    """Inside it the database is this thread's; an error undoes what it did."""
    try:
      with self._lock, self._database:
        self._database.execute('begin immediate')
        yield self._database
    except (OSError, sqlite3.Error) as error:
      raise records.UnavailableError(
        f'the store of states fails: {error}'
      ) from error

  def _check_whole(self):
    """Raises sqlite3.DatabaseError if the records are damaged.

    A state has a digest, and is checked when it is read.
    """
    (words,) = self._database.execute('pragma quick_check(states)').fetchone()
    if words != 'ok':
      raise sqlite3.DatabaseError(words.strip().splitlines()[-1])

  def _find(self, owner, state_id):
    row = self._database.execute(
      f'select {COLUMNS} from states where id = ? and owner = ?',
      (state_id, owner),
    ).fetchone()
    if row is None:
      records.refuse_id(state_id)
    return records.Record(*row)

  def _remove_old(self):
    if self._limits.days:
      before = time.time() - self._limits.days * records.DAY
      self._database.execute('delete from states where used < ?', (before,))


def _refuse_place(folder, error):
  """Raises InputError: a folder of states can't be used."""
  damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
    error, sqlite3.OperationalError
  )
  remedy = 'give a folder that can be written'
  if damaged:
    remedy = (
      'its states.sqlite is damaged: move the folder away, or restore it from '
      'a backup; the states in it are lost otherwise'
    )
  errors.refuse('store', str(folder), f'{error}: {remedy}')
