"""Bytes and arrays in files, read by position.

Memory holds only what was asked for: unlike with a map, no page of a file that
was read stays resident in the process. A file pickles as its path, and is
opened when it is first used.
"""

import os
from collections.abc import Sequence
from typing import IO
from typing import Any
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Content(Protocol):
  """The bytes of a file: Bytes, or a sealed.File."""

  def __len__(self) -> int: ...
  def read(self, start: int, stop: int) -> bytes: ...


class Bytes:
  """A file of bytes that may change."""

  def __init__(self, path: str | os.PathLike) -> None:
    self.path = str(path)
    self._file: Any = None

  def __getstate__(self) -> dict[str, Any]:
    return self.__dict__ | {'_file': None}

  def __len__(self) -> int:
    return os.path.getsize(self.path)

  def read(self, start: int, stop: int) -> bytes:
    """Returns bytes `start` to `stop`, fewer at the end of the file."""
    if self._file is None:
      # Unbuffered: threads share its number, not its position.
      self._file = open(self.path, 'rb', buffering=0)  # noqa: SIM115
    return read(self._file, start, stop)


def read(file: IO[bytes], start: int, stop: int) -> bytes:
  """Returns bytes `start` to `stop` of a file, fewer at its end."""
  parts, at = [], start
  while at < stop:  # at most 2 GiB come at once
    part = os.pread(file.fileno(), stop - at, at)
    if not part:
      break
    parts.append(part)
    at += len(part)
  return parts[0] if len(parts) == 1 else b''.join(parts)


class Array:
  """An array with one axis in a file of its elements.

  An index gives a number, a slice (without a step) or an array of indices a
  NumPy array; so does `np.asarray`, which reads the whole.
  """

  def __init__(self, content: Content, dtype: npt.DTypeLike) -> None:
    self.dtype = np.dtype(dtype)
    self._count = len(content) // self.dtype.itemsize
    self._bytes = content

  def __len__(self) -> int:
    return self._count

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      start, stop, step = index.indices(self._count)
      assert step == 1
      return self._read(start, max(stop, start))
    if isinstance(index, np.ndarray):
      return np.asarray(self)[index]
    index = int(index)
    index += self._count * (index < 0)
    if not 0 <= index < self._count:
      raise IndexError(index)
    return self._read(index, index + 1)[0]

  def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
    del copy  # it always is one
    return self._read(0, self._count).astype(dtype or self.dtype, copy=False)

  def _read(self, start, stop):
    width = self.dtype.itemsize
    content = self._bytes.read(start * width, stop * width)
    return np.frombuffer(content, self.dtype)


class Names(Sequence[str]):
  """Strings in a file of all of them, and the array of where each ends."""

  def __init__(self, text: Content, ends: Array) -> None:
    self._text = text
    self._ends = ends

  def __len__(self) -> int:
    return len(self._ends)

  def __getitem__(self, index: Any) -> Any:
    if isinstance(index, slice):
      return [self[n] for n in range(*index.indices(len(self)))]
    if not 0 <= index < len(self):
      raise IndexError(index)
    start, stop = span(self._ends, int(index))
    return self._text.read(start, stop).decode(errors='surrogateescape')


def span(ends: Array | np.ndarray, n: int) -> tuple[int, int]:
  """Returns where element `n` begins and ends, given where each ends."""
  if not n:
    return 0, int(ends[0])
  start, stop = ends[n - 1 : n + 1]
  return int(start), int(stop)


class Writer:
  """Appends to a file of the elements of an array, which may be in memory."""

  def __init__(self, file: IO[bytes], dtype: npt.DTypeLike) -> None:
    self._file = file
    self._dtype = np.dtype(dtype)
    self.count = 0

  def append(self, values: npt.ArrayLike) -> None:
    """Writes the elements of an array with one axis."""
    elements = np.ascontiguousarray(values, self._dtype)
    self._file.write(elements.data)
    self.count += len(elements)
