"""Text files, UTF-8, one document each: a path or a glob (`**` for all
subfolders)."""

import codecs
import copy
import dataclasses
import os

import numpy as np

from rnn_jax import errors
from rnn_jax.data.sources import base
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents
from rnn_jax.system import files as files_lib

BLOCK = 2**24  # bytes of a file in memory at a time


@dataclasses.dataclass(frozen=True)
class Config(base.Files):
  """Options of the source, of section `data` of the config."""


class Files:
  """The Reader of whole files, named by their path relative to `root`."""

  def __init__(self, files: list[str], root: str) -> None:
    self.files = tuple(files)
    self.root = root
    self.labels = None
    self.difficulties = None
    self._marks = np.array([_mark_size(file) for file in files], np.int64)
    sizes = np.array([os.path.getsize(file) for file in files], np.int64)
    self.sizes = sizes - self._marks  # a byte order mark isn't text
    self.names = tuple(
      os.path.relpath(file, root).replace(os.sep, '/') for file in files
    )

  def part(self, units: np.ndarray) -> 'Files':
    """Returns the reader of some of the files."""
    part = copy.copy(self)
    part.files = tuple(self.files[unit] for unit in units)
    part.names = tuple(self.names[unit] for unit in units)
    part.sizes = self.sizes[units]
    part._marks = self._marks[units]
    return part

  def read(self, unit: int, start: int, stop: int) -> bytes:
    with open(self.files[unit], 'rb') as file:
      file.seek(int(self._marks[unit]) + start)
      return file.read(stop - start)


def raw_files(data: base.Files) -> dict[str, list[str]]:
  """Returns the files that each key of `data` matches.

  Raises:
    InputError: as `match`.
  """
  keys = 'path', 'validation_path', 'test_path'
  given = {key: getattr(data, key) for key in keys}
  return {
    key: match(path, f'data.{key}')
    for key, path in given.items()
    if path or key == 'path'
  }


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: no file matches, or a file is empty or not UTF-8.
  """
  return base.load_files(data, open_files)


def open_files(path: str, key: str) -> Files:
  """Returns the reader of the files that `path` matches.

  Raises:
    InputError: as `load`; `key` is the config key that a message names.
  """
  files = match(path, key)
  for file in files:
    check_text(file, key)
  return Files(files, os.path.commonpath([os.path.dirname(f) for f in files]))


def match(path: str, key: str) -> list[str]:
  """Lists the files that a path or a glob matches, sorted.

  Raises:
    InputError: no file matches, or one is empty.
  """
  if not path:
    raise errors.InputError(f'{key}={path!r}: give a file or a glob')
  files = _without_links(files_lib.matching(path))
  if not files:
    held_out = key in ('data.validation_path', 'data.test_path')
    raise errors.InputError(
      f'{key}={path!r}: no such file (searched in {os.getcwd()}): give a file '
      "or a glob such as 'folder/**/*.txt'"
      + (f", or {key}='' to split off data.path" if held_out else '')
    )
  for file in files:
    if not os.path.getsize(file):
      raise errors.InputError(
        f'{key}={path!r}: {file} is empty: fill it or leave it out'
      )
  return files


def _without_links(matches):
  """Returns each file once, sorted, though links may lead to it again."""
  by_target: dict[str, str] = {}
  for path in sorted(map(os.path.abspath, matches), key=lambda x: (len(x), x)):
    by_target.setdefault(os.path.realpath(path), path)
  return sorted(by_target.values())


def _mark_size(file):
  with open(file, 'rb') as opened:
    return lines.mark_size(opened.read(lines.SEEN))


def check_text(file: str, key: str) -> None:
  """Raises InputError, with the byte offset, unless the file is UTF-8."""
  decoder, read = codecs.getincrementaldecoder('utf-8')(), 0
  with open(file, 'rb') as opened:
    lines.check_kind(opened.read(lines.SEEN), f'{key}: {file}')
    opened.seek(0)
    while True:
      content = opened.read(BLOCK)
      waiting = len(decoder.getstate()[0])  # of a character that was cut
      try:
        decoder.decode(content, not content)
      except UnicodeDecodeError as error:
        raise errors.InputError(
          f'{key}: {file} is not UTF-8 at byte offset '
          f'{read - waiting + error.start}: convert it or leave it out'
        ) from None
      if not content:
        return
      read += len(content)
