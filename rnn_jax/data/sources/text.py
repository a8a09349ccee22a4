"""Text files, UTF-8, one document each: a path or a glob (`**` for all
subfolders)."""

import copy
import dataclasses
import os

import numpy as np

from rnn_jax.data.sources import base
from rnn_jax.data.tables import lines
from rnn_jax.data.text import documents


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
    InputError: as lines.match.
  """
  keys = 'path', 'validation_path', 'test_path'
  given = {key: getattr(data, key) for key in keys}
  return {
    key: lines.match(path, f'data.{key}')
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
  files = lines.match(path, key)
  for file in files:
    lines.check(file, key)
  return Files(files, os.path.commonpath([os.path.dirname(f) for f in files]))


def _mark_size(file):
  with open(file, 'rb') as opened:
    return lines.mark_size(opened.read(lines.SEEN))
