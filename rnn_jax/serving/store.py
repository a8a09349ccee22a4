"""States of conversations that outlive the process, by id and owner.

    store = store.open_store('runs/demo/states')
    record = store.put('alice', content, tokens=812, model='9f..')
    store.get('alice', record.id)

A state is bytes (serving/states.py writes them); an owner is the name of an API
key. One owner's ids mean nothing to another. There are two places:

    a folder      an SQLite file
    redis://...   a Redis server that several processes share

Each state has the SHA-256 of its bytes in its record. A state and its record
are written in one transaction: a process that is killed at any time leaves
both or neither.

A state that nobody has read for `days` days is removed; 0 keeps all.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

from rnn_jax import errors

DAY = 86400.0
ID = re.compile(r'state-[0-9a-f]{32}')
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


class NotFoundError(errors.InputError):
  """The owner has no state of this id."""


class DamagedError(errors.InputError):
  """The bytes of a state aren't those that were stored."""


class QuotaError(errors.InputError):
  """The owner's states would take more bytes than allowed."""


class UnavailableError(RuntimeError):
  """The place of the states doesn't answer, or has no space."""


@dataclasses.dataclass(frozen=True)
class Record:
  """What is known of a state without reading it.

  Attributes:
    id: its name, which nobody can guess.
    model: the digest of the model that made it.
    tokens: how many it has read.
    size: in bytes.
    sha256: of its bytes.
    created: seconds since 1970.
  """

  id: str
  model: str
  tokens: int
  size: int
  sha256: str
  created: float


@dataclasses.dataclass(frozen=True)
class Limits:
  """What one owner may store, and for how long.

  Attributes:
    bytes_per_owner: of all states of one owner.
    days: without being read, after which a state is removed; 0: never.
  """

  bytes_per_owner: int = 2**30
  days: float = 30.0

  def __post_init__(self):
    if self.bytes_per_owner < 0:
      errors.refuse('store_bytes', self.bytes_per_owner, 'give 0 or more')
    if not 0 <= self.days < 1e6:
      errors.refuse('store_days', self.days, 'give 0 (for ever) or more')


def open_store(place: str, limits: Limits | None = None) -> 'Store':
  """Opens a place of states.

  Args:
    place: a folder, which is made if need be, or the URL of a Redis server,
      redis://HOST:PORT/NUMBER (rediss:// with TLS).
    limits: of each owner.

  Raises:
    InputError: the folder can't be used, the server doesn't answer, or its
      package is not installed.
  """
  limits = limits or Limits()
  if place.startswith(('redis://', 'rediss://', 'unix://')):
    return RedisStore(place, limits)
  if '://' in place:
    errors.refuse('store', place, 'give a folder, or redis://HOST:PORT/NUMBER')
  return FolderStore(pathlib.Path(place), limits)


class FolderStore:
  """States in a folder of this machine. Several processes may share it.

  All methods may be called from several threads. Each raises UnavailableError
  if the place doesn't answer.
  """

  def __init__(self, folder: pathlib.Path, limits: Limits) -> None:
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
    except (OSError, UnavailableError) as error:
      _refuse_place(folder, error.__cause__ or error)

  def put(self, owner: str, content: bytes, tokens: int, model: str) -> Record:
    """Keeps a state. Raises QuotaError."""
    record = make_record(content, tokens, model)
    with self._transaction() as database:
      self._remove_old()
      row = database.execute(
        'select coalesce(sum(size), 0) from states where owner = ?', (owner,)
      ).fetchone()
      _check_quota(row[0] + record.size, self._limits)
      database.execute(
        f'insert into states ({COLUMNS}, owner, used) '
        'values (?, ?, ?, ?, ?, ?, ?, ?)',
        (*dataclasses.astuple(record), owner, record.created),
      )
      database.execute(
        'insert into contents values (?, ?)', (record.id, content)
      )
    return record

  def get(self, owner: str, state_id: str) -> tuple[Record, bytes]:
    """Returns a state, whole. Raises NotFoundError or DamagedError."""
    with self._transaction() as database:
      record = self._find(owner, state_id)
      database.execute(
        'update states set used = ? where id = ?', (time.time(), state_id)
      )
      (content,) = database.execute(
        'select content from contents where id = ?', (state_id,)
      ).fetchone() or (b'',)
    return record, _checked(record, content)

  def list(self, owner: str) -> list[Record]:
    """Returns the records of an owner, the oldest first."""
    with self._transaction() as database:
      self._remove_old()
      rows = database.execute(
        f'select {COLUMNS} from states where owner = ? order by created, id',
        (owner,),
      ).fetchall()
    return [Record(*row) for row in rows]

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
      raise UnavailableError(f'the store of states fails: {error}') from error

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
      _refuse_id(state_id)
    return Record(*row)

  def _remove_old(self):
    if self._limits.days:
      before = time.time() - self._limits.days * DAY
      self._database.execute('delete from states where used < ?', (before,))


class RedisStore:
  """States in a Redis server, which several machines share.

  A state is a key that expires; a hash of each owner has the records.
  """

  def __init__(self, url: str, limits: Limits) -> None:
    try:
      import redis
    except ModuleNotFoundError:
      errors.refuse('store', url, "run pip install 'rnn_jax[redis]'")
    self._limits = limits
    self._error = redis.RedisError
    try:
      self._redis: Any = redis.Redis.from_url(
        url, socket_timeout=10, socket_connect_timeout=5
      )
      self._redis.ping()
    except (redis.RedisError, ValueError, OSError) as error:
      # Not the URL: it may have a password.
      raise errors.InputError(
        f'store=redis: {error}: start the server, or give its URL as '
        'redis://HOST:PORT/NUMBER'
      ) from None

  def put(self, owner: str, content: bytes, tokens: int, model: str) -> Record:
    """See FolderStore."""
    record = make_record(content, tokens, model)
    with self._available():
      used = sum(each.size for each in self.list(owner))
      _check_quota(used + record.size, self._limits)
      pipe = self._redis.pipeline(transaction=True)
      pipe.set(_key(owner, record.id), content, ex=self._seconds())
      fields = json.dumps(dataclasses.asdict(record))
      pipe.hset(_index(owner), record.id, fields)
      pipe.execute()
    return record

  def get(self, owner: str, state_id: str) -> tuple[Record, bytes]:
    """See FolderStore."""
    with self._available():
      found = self._redis.hget(_index(owner), state_id)
      content = self._redis.get(_key(owner, state_id))
      if found is None or content is None:
        _refuse_id(state_id)
      if seconds := self._seconds():
        self._redis.expire(_key(owner, state_id), seconds)
    record = _from_redis(found)
    return record, _checked(record, content)

  def list(self, owner: str) -> list[Record]:
    """See FolderStore."""
    with self._available():
      rows = self._redis.hgetall(_index(owner))
      names = [name.decode() for name in rows]
      pipe = self._redis.pipeline(transaction=False)
      for name in names:
        pipe.exists(_key(owner, name))
      alive = pipe.execute() if names else []
      expired = [n for n, yes in zip(names, alive, strict=True) if not yes]
      if expired:
        self._redis.hdel(_index(owner), *expired)
    records = [_from_redis(row) for row in rows.values()]
    kept = [record for record in records if record.id not in {*expired}]
    return sorted(kept, key=lambda record: (record.created, record.id))

  def delete(self, owner: str, state_id: str) -> None:
    """See FolderStore."""
    with self._available():
      pipe = self._redis.pipeline(transaction=True)
      pipe.delete(_key(owner, state_id))
      pipe.hdel(_index(owner), state_id)
      if not pipe.execute()[0]:
        _refuse_id(state_id)

  def close(self) -> None:
    """See FolderStore."""
    self._redis.close()

  @contextlib.contextmanager
  def _available(self):
    try:
      yield
    except (self._error, OSError) as error:
      raise UnavailableError(f'the store of states fails: {error}') from error

  def _seconds(self):
    return max(1, round(self._limits.days * DAY)) if self._limits.days else None


Store = FolderStore | RedisStore


def make_record(content: bytes, tokens: int, model: str) -> Record:
  """Returns the record of a new state."""
  return Record(
    id=f'state-{secrets.token_hex(16)}',
    model=model,
    tokens=tokens,
    size=len(content),
    sha256=hashlib.sha256(content).hexdigest(),
    created=time.time(),
  )


def _checked(record, content):
  if hashlib.sha256(content).hexdigest() != record.sha256:
    raise DamagedError(
      f'state={record.id!r}: its bytes are damaged: delete it, and make it '
      'again'
    )
  return content


def _check_quota(size, limits):
  if size > limits.bytes_per_owner:
    raise QuotaError(
      f'your states would take {size:,} bytes, and {limits.bytes_per_owner:,} '
      'are allowed: delete some'
    )


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


def _refuse_id(state_id):
  raise NotFoundError(
    f'state={state_id!r}: there is no such state: GET /v1/states lists yours'
  )


def _index(owner):
  return f'rnn_jax:states:{owner}'


def _key(owner, state_id):
  return f'rnn_jax:state:{owner}:{state_id}'


def _from_redis(row):
  return Record(**json.loads(row))
