"""States in a folder of this machine: an SQLite file.

A state and its record are written in one transaction: a process that is killed
at any time leaves both or neither. Several processes may share the folder.
"""

import dataclasses
import pathlib
import time

from rnn_jax.serving import database
from rnn_jax.serving import records

COLUMNS = 'id, model, tokens, size, sha256, created'  # of a Record
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
    self._database = database.Database(folder / 'states.sqlite', SCHEMA)
    # A state has a digest, and is checked when it is read.
    self._database.check('states')
    with self._database.opening(), self._transaction():
      self._remove_old()

  def put(
    self, owner: str, content: bytes, tokens: int, model: str
  ) -> records.Record:
    """Keeps a state. Raises QuotaError."""
    record = records.make_record(content, tokens, model)
    with self._transaction() as rows:
      self._remove_old()
      row = rows.execute(
        'select coalesce(sum(size), 0) from states where owner = ?', (owner,)
      ).fetchone()
      records.check_quota(row[0] + record.size, self._limits)
      rows.execute(
        f'insert into states ({COLUMNS}, owner, used) '
        'values (?, ?, ?, ?, ?, ?, ?, ?)',
        (*dataclasses.astuple(record), owner, record.created),
      )
      rows.execute('insert into contents values (?, ?)', (record.id, content))
    return record

  def get(self, owner: str, state_id: str) -> tuple[records.Record, bytes]:
    """Returns a state, whole. Raises NotFoundError or DamagedError."""
    with self._transaction() as rows:
      record = self._find(owner, state_id)
      rows.execute(
        'update states set used = ? where id = ?', (time.time(), state_id)
      )
      (content,) = rows.execute(
        'select content from contents where id = ?', (state_id,)
      ).fetchone() or (b'',)
    return record, records.checked(record, content)

  def list(self, owner: str) -> list[records.Record]:
    """Returns the records of an owner, the oldest first."""
    with self._transaction() as rows:
      self._remove_old()
      found = rows.execute(
        f'select {COLUMNS} from states where owner = ? order by created, id',
        (owner,),
      ).fetchall()
    return [records.Record(*row) for row in found]

  def delete(self, owner: str, state_id: str) -> None:
    """Removes a state. Raises NotFoundError."""
    with self._transaction() as rows:
      self._find(owner, state_id)
      rows.execute('delete from states where id = ?', (state_id,))

  def close(self) -> None:
    """Lets go of files and connections."""
    self._database.close()

  @property
  def _transaction(self):
    return self._database.transaction

  def _find(self, owner, state_id):
    row = self._database.connection.execute(
      f'select {COLUMNS} from states where id = ? and owner = ?',
      (state_id, owner),
    ).fetchone()
    if row is None:
      records.refuse_id(state_id)
    return records.Record(*row)

  def _remove_old(self):
    if self._limits.days:
      before = time.time() - self._limits.days * records.DAY
      self._database.connection.execute(
        'delete from states where used < ?', (before,)
      )
