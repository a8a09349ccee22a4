"""Folders that are written whole, and whose files are checked as they are read.

A sealed folder has an INDEX beside its files, which is written last:

    {"format": 1, "name": ..., "about": {...}, "seal": SHA-256 of the rest,
     "files": {"train.text": {"bytes": 70000, "crc32c": "8d3f2c0196a1b05e"}}}

with a CRC-32C, 8 hexadecimal digits, of each BLOCK of each file. A block is
checked when a process first reads from it, so opening a folder takes no longer
than reading the index, and no number comes of bytes that a disk, a power cut or
another program changed. All files and the folder reach the disk before the
folder gets its name.

What is noticed is damage, not an attack: whoever can write to a folder can seal
it again. So it must belong to the user, and others must not be able to write to
it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil
import stat
from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np

from rnn_jax import errors
from rnn_jax.data.store import arrays
from rnn_jax.native import cache
from rnn_jax.system import files

FORMAT = 1
INDEX = 'index.json'
BLOCK = 2**16  # bytes
MAX_INDEX_BYTES = 2**28  # a CRC of each block of 2 TiB

Build = Callable[[pathlib.Path], dict[str, Any]]


class DamagedError(errors.InputError):
  """A folder isn't what was written; its argument says what of it."""

  def __str__(self) -> str:
    return f'{self.args[0]}: start again, which writes these files again'


class File:
  """A file of a sealed folder, which is read by position.

  It pickles as its path and digests; another process checks its blocks, too.
  """

  def __init__(self, path: pathlib.Path, size: int, crcs: np.ndarray) -> None:
    self.path = str(path)
    self.size = size
    self._crcs = crcs
    self._checked = bytearray(len(crcs))
    self._file: Any = None

  def __getstate__(self) -> dict[str, Any]:
    unread = {'_file': None, '_checked': bytearray(len(self._crcs))}
    return self.__dict__ | unread

  def __len__(self) -> int:
    return self.size

  def read(self, start: int, stop: int) -> bytes:
    """Returns bytes `start` to `stop`, fewer at the end of the file.

    Raises:
      DamagedError: they aren't those that were written.
    """
    stop = min(stop, self.size)
    if start >= stop:
      return b''
    first, last = start // BLOCK, -(-stop // BLOCK)
    if self._checked.find(0, first, last) < 0:
      return self._read(start, stop)
    begin = first * BLOCK
    content = self._read(begin, min(last * BLOCK, self.size))
    for n in range(first, last):
      if not self._checked[n]:
        self._check(n, content[n * BLOCK - begin : (n + 1) * BLOCK - begin])
    return content[start - begin : stop - begin]

  def verify(self) -> None:
    """Checks all blocks, those that were read before, too."""
    for n in range(len(self._crcs)):
      begin = n * BLOCK
      self._check(n, self._read(begin, min(begin + BLOCK, self.size)))

  def _check(self, n, block):
    if google_crc32c.value(block) != self._crcs[n]:
      end = n * BLOCK + len(block)
      self._refuse(f'bytes {n * BLOCK:,} to {end:,} are not those written')
    self._checked[n] = 1

  def _read(self, start, stop):
    if self._file is None:
      try:
        self._file = _open(pathlib.Path(self.path))
      except OSError as error:
        self._refuse(error.strerror)
    content = arrays.read(self._file, start, stop)
    if (end := start + len(content)) < stop:
      self._refuse(f'it ends after {end:,} of {self.size:,} bytes')
    return content

  def _refuse(self, reason):
    """Raises DamagedError; the next start doesn't take the folder for whole."""
    with contextlib.suppress(OSError):
      os.unlink(os.path.join(os.path.dirname(self.path), INDEX))
    raise DamagedError(f'{self.path}: {reason}')


@dataclasses.dataclass(frozen=True)
class Folder:
  """A sealed folder.

  Attributes:
    path: of it.
    about: what its builder returned, of JSON's types.
    files: by name.
  """

  path: pathlib.Path
  about: dict[str, Any]
  files: dict[str, File]

  def verify(self) -> int:
    """Checks all blocks of all files; returns their bytes.

    Raises:
      DamagedError: a block isn't what was written.
    """
    for file in self.files.values():
      file.verify()
    return sum(file.size for file in self.files.values())


def write(path: pathlib.Path, build: Build) -> Folder:
  """Builds a folder, seals it and moves it to its place, which is free.

  Args:
    path: of the folder.
    build: writes files into an empty folder, and returns what the index says
      about them, JSON-ready.

  Raises:
    OSError: the disk doesn't take it.
  """
  with cache.workspace(path.parent) as space:
    new = space / 'new'
    new.mkdir(mode=0o755)  # whatever the umask is, others can't write to it
    about = build(new)
    listed = {file.name: _describe(file) for file in sorted(new.iterdir())}
    index = {'format': FORMAT, 'name': path.name}
    index |= {'about': about, 'files': listed}
    text = files.to_json(index | {'seal': _seal(index)})
    (new / INDEX).write_text(text, encoding='utf-8')
    (new / INDEX).chmod(0o644)
    _sync(new / INDEX)
    _sync(new)
    os.replace(new, path)
    _sync(path.parent)
  return open_folder(path)


def open_folder(path: pathlib.Path) -> Folder:
  """Returns a sealed folder, of which only the index has been read.

  Raises:
    FileNotFoundError: there is nothing.
    InputError: it belongs to another user, or others can write to it.
    DamagedError: it isn't what was written.
  """
  status = path.lstat()
  if not cache.is_own(status):
    raise errors.InputError(
      f'{path} belongs to another user, or others can write to it, so what it '
      'holds may be anything: name another folder in data.cache, or remove it'
    )
  try:
    return _opened(path)
  except OSError as error:
    reason = f'{error.filename or path}: {error.strerror}'
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    reason = f'{path / INDEX}: {error}'
  raise DamagedError(reason)


def remove(path: pathlib.Path) -> None:
  """Removes what is at a path, if it can be removed."""
  shutil.rmtree(path, ignore_errors=True)
  with contextlib.suppress(OSError):
    path.unlink()


def remember(path: pathlib.Path, what: str, make: Callable[[], Any]) -> Any:
  """Returns make(), of JSON's types, or what it was when it was kept in a file.

  Args:
    path: of the file, in a sealed folder.
    what: which fact it is.
    make: makes it, which takes long.
  """
  of = {'folder': path.parent.name, 'what': what}
  with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
    known = files.from_json(_content(path))
    seal = known.pop('seal')
    if seal == _seal(known) and known == of | {'value': known['value']}:
      return known['value']
  fact = of | {'value': make()}
  with contextlib.suppress(OSError):  # then it is made at each start
    files.write_whole(path, files.to_json(fact | {'seal': _seal(fact)}))
    path.chmod(0o644)
  return fact['value']


def _opened(path):
  index = files.from_json(_content(path / INDEX))
  seal = index.pop('seal')
  if seal != _seal(index):
    raise ValueError('it is not what was written')
  if (index['format'], index['name']) != (FORMAT, path.name):
    raise ValueError(f'it is of another folder, {index["name"]}')
  found = {}
  for name, each in index['files'].items():
    status = (path / name).lstat()
    regular = stat.S_ISREG(status.st_mode) and cache.is_own(status)
    if not regular or status.st_size != each['bytes']:
      raise OSError(None, 'not the file that was written', str(path / name))
    crcs = np.frombuffer(bytes.fromhex(each['crc32c']), '>u4')
    found[name] = File(path / name, each['bytes'], crcs)
  return Folder(path, index['about'], found)


def _describe(path):
  """Returns the entry of a file in the index, once the file is on the disk."""
  _sync(path)
  path.chmod(0o644)
  with path.open('rb') as file:
    blocks = iter(functools.partial(file.read, BLOCK), b'')
    crcs = [f'{google_crc32c.value(block):08x}' for block in blocks]
  return {'bytes': path.stat().st_size, 'crc32c': ''.join(crcs)}


def _seal(value):
  text = files.to_json(value, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _open(path):
  """Opens a regular file; not what a link names, nor a pipe."""
  flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
  number = os.open(path, flags)
  if not stat.S_ISREG(os.fstat(number).st_mode):
    os.close(number)
    raise OSError(None, 'not a regular file', str(path))
  # Unbuffered: threads share its number, not its position.
  return os.fdopen(number, 'rb', buffering=0)


def _content(path):
  with _open(path) as file:
    status = os.fstat(file.fileno())
    if status.st_size > MAX_INDEX_BYTES or not cache.is_own(status):
      raise OSError(None, 'not the file that was written', str(path))
    return file.readall()


def _sync(path):
  """Waits until a file, or the names in a folder, are on the disk."""
  number = os.open(path, os.O_RDONLY)
  try:
    os.fsync(number)
  finally:
    os.close(number)
