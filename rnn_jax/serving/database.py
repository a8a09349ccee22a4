"""An SQLite file of this machine, for what outlives a server.

A transaction is on the disk, whole, when it has ended: a process that is killed
at any time, or a power cut, leaves all of it or nothing.
"""

import contextlib
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.serving import records

PRAGMAS = (
  'auto_vacuum = full',  # what is removed frees space on the disk
  'journal_mode = wal',
  'synchronous = full',
  'foreign_keys = on',
)


class Database:
  """See the module's docstring. All methods may be called from any thread.

  Attributes:
    connection: for use within `transaction`.
  """

  def __init__(self, path: pathlib.Path, schema: str) -> None:
    """Opens a file, or makes it with a schema.

    Raises:
      InputError: it can't be used, or is damaged.
    """
    self._path = path
    self._lock = threading.Lock()
    with self.opening():
      path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
      if not path.exists():  # SQLite's own files have the mode of this one
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
      self.connection = sqlite3.connect(
        path,
        timeout=10,
        check_same_thread=False,
        isolation_level=None,  # transactions begin where the code says so
      )
      for pragma in PRAGMAS:
        self.connection.execute(f'pragma {pragma}')
      self.connection.executescript(schema)

  def check(self, table: str) -> None:
    """Checks that the pages of a table aren't damaged.

    Raises:
      InputError: they are.
    """
    with self.opening():
      (words,) = self.connection.execute(
        f'pragma quick_check({table})'
      ).fetchone()
      if words != 'ok':
        raise sqlite3.DatabaseError(words.strip().splitlines()[-1])

  @contextlib.contextmanager
  def transaction(self) -> Iterator[sqlite3.Connection]:
    """Inside it the database is this thread's; an error undoes what it did.

    Raises:
      UnavailableError: the disk is full, or fails.
    """
    try:
      with self._lock, self.connection:
        self.connection.execute('begin immediate')
        yield self.connection
    except (OSError, sqlite3.Error) as error:
      raise records.UnavailableError(
        f'the store of states fails: {error}'
      ) from error

  def close(self) -> None:
    """Lets go of the file."""
    with self._lock:
      self.connection.close()

  @contextlib.contextmanager
  def opening(self) -> Iterator[None]:
    """Inside it a failure is an InputError that names the folder."""
    try:
      yield
    except (OSError, sqlite3.DatabaseError, records.UnavailableError) as error:
      cause = error.__cause__ or error
      remedy = 'give a folder that can be written'
      if isinstance(cause, sqlite3.DatabaseError) and not isinstance(
        cause, sqlite3.OperationalError
      ):
        remedy = (
          f'its {self._path.name} is damaged: move the folder away, or restore '
          'it from a backup; the states in it are lost otherwise'
        )
      errors.refuse('store', str(self._path.parent), f'{cause}: {remedy}')
