"""The header of a GGUF file that a stranger wrote, and its tensors.

    'GGUF', version, number of tensors, number of values     4 + 4 + 8 + 8 bytes
    for each value: key, type, value
    for each tensor: name, dimensions (fastest first), type, offset
    the tensors, aligned

Every length, offset and size is compared with the file's before anything of
that size is made; tensors can't overlap. The reader of package `gguf` keeps an
array for each token of a vocabulary, and trusts more of what it reads.
Source: github.com/ggml-org/ggml, docs/gguf.md.
"""

import math
import mmap
import pathlib
import struct
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.gguf import blocks
from rnn_jax.system import files

MAGIC = b'GGUF'
VERSIONS = (2, 3)
REMEDY = 'get it again'
ALIGNMENT = 'general.alignment'
DEFAULT_ALIGNMENT, MAX_ALIGNMENT = 32, 2**16
HEADER = 2**27  # bytes of all values and names
NAME = 2**16  # bytes of a key or a tensor's name
VALUES, TENSORS = 2**16, 2**18
DIMENSIONS = 4
STRING, ARRAY = 8, 9
NUMBERS = {  # types of a value
  0: '<u1',
  1: '<i1',
  2: '<u2',
  3: '<i2',
  4: '<u4',
  5: '<i4',
  6: '<f4',
  7: '?',
  10: '<u8',
  11: '<i8',
  12: '<f8',
}


class Tensor(NamedTuple):
  """A tensor in a file.

  Attributes:
    path: of the file.
    shape: of its numbers, the fastest axis last, as blocks.squeezed has it.
    kind: a name of blocks.KINDS.
    offset: of its first byte in the file.
    nbytes: of its blocks.
  """

  path: pathlib.Path
  shape: tuple[int, ...]
  kind: str
  offset: int
  nbytes: int


class File(NamedTuple):
  """A file whose header was read, or several that are one model.

  Attributes:
    path: of it, or of the first.
    values: by key; an array is a list of texts, or of NumPy.
    tensors: by name.
  """

  path: pathlib.Path
  values: dict[str, Any]
  tensors: dict[str, Tensor]

  def read(self, name: str) -> np.ndarray:
    """Returns the float32 numbers of a tensor."""
    x = self.tensors[name]
    data = np.memmap(x.path, np.uint8, 'r', x.offset, (x.nbytes,))
    return blocks.decode(data, x.kind, x.shape)


def read(path: pathlib.Path, within: str | None = None) -> File:
  """Returns a file, of which only the header is read.

  Args:
    path: of it.
    within: as of files.regular; None: the user has named the file.

  Raises:
    InputError: it can't be read, or is damaged.
  """
  with files.reading(path, REMEDY):
    within = within or files.named(path)
    with files.open_regular(path, within) as file:
      real = pathlib.Path(files.regular(path, within))
      if file.read(len(MAGIC)) != MAGIC:
        raise ValueError('it does not begin with GGUF')
      with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return File(real, *_header(data, real))


def _header(data, path):
  """Returns (values, tensors)."""
  cursor = _Cursor(data)
  cursor.skip(len(MAGIC))
  version = cursor.number('<u4')
  if version not in VERSIONS:
    raise ValueError(f'version {version}, and {[*VERSIONS]} can be read')
  tensors, values = cursor.number('<u8'), cursor.number('<u8')
  cursor.check_count(values, 13, 'values', VALUES)
  cursor.check_count(tensors, 24, 'tensors', TENSORS)
  by_key: dict[str, Any] = {}
  for _ in range(values):
    key = cursor.text(NAME)
    if key in by_key:
      raise ValueError(f'{keys_lib.shown(key)} twice')
    by_key[key] = cursor.value(key)
  infos = [cursor.tensor() for _ in range(tensors)]
  placed = _placed(infos, cursor.at, by_key, len(data))
  return by_key, {name: Tensor(path, *x) for name, x in placed.items()}


def _placed(infos, end, values, size):
  """Returns (shape, kind, offset, nbytes) by name, whose bytes are its own."""
  unit = values.get(ALIGNMENT, DEFAULT_ALIGNMENT)
  powers = [2**n for n in range(MAX_ALIGNMENT.bit_length())]
  if type(unit) is not int or unit not in powers:
    raise ValueError(f'{ALIGNMENT}={keys_lib.shown(unit)}')
  begin = math.ceil(end / unit) * unit
  placed: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
  for name, shape, kind, offset in infos:
    nbytes = blocks.nbytes(shape, kind, name)
    if name in placed:
      raise ValueError(f'tensor {name} twice')
    if offset % unit or begin + offset + nbytes > size:
      raise ValueError(
        f'tensor {name} has bytes {offset:,} to {offset + nbytes:,} of '
        f'{max(size - begin, 0):,}, aligned to {unit}'
      )
    placed[name] = shape, kind, begin + offset, nbytes
  at, before = begin, ''
  for name, x in sorted(placed.items(), key=lambda pair: pair[1][2]):
    *_, offset, nbytes = x
    if offset < at:
      raise ValueError(f'tensors {before} and {name} overlap')
    at, before = offset + nbytes, name
  return placed


class _Cursor:
  """A place in a file's header."""

  def __init__(self, data):
    self._data, self.at = data, 0
    self._end = min(len(data), HEADER)

  def skip(self, size):
    """Returns where the next `size` bytes begin, and goes past them."""
    begin = self.at
    if size > self._end - begin:
      raise ValueError(
        f'{size:,} bytes are expected at {begin:,} of {self._end:,}'
      )
    self.at += size
    return begin

  def number(self, kind):
    dtype = np.dtype(kind)
    return np.frombuffer(self._data, dtype, 1, self.skip(dtype.itemsize)).item()

  def check_count(self, count, least, what, most=keys_lib.MAX_SIZE):
    """Checks that so many of `least` bytes each can be in the file."""
    if count > most or count * least > self._end - self.at:
      raise ValueError(f'{count:,} {what} in {self._end:,} bytes')

  def text(self, most=HEADER):
    (size,) = struct.unpack_from('<Q', self._data, self.skip(8))
    if size > most:
      raise ValueError(f'a text of {size:,} bytes')
    begin = self.skip(size)
    return self._data[begin : self.at].decode()

  def value(self, key):
    kind = self.number('<u4')
    if kind == ARRAY:
      return self._array(key)
    return self.text() if kind == STRING else self.number(_known(kind, key))

  def _array(self, key):
    kind, count = self.number('<u4'), self.number('<u8')
    if kind == STRING:
      self.check_count(count, 8, f'texts of {keys_lib.shown(key)}')
      return [self.text() for _ in range(count)]
    dtype = np.dtype(_known(kind, key))
    self.check_count(count, dtype.itemsize, f'items of {keys_lib.shown(key)}')
    begin = self.skip(count * dtype.itemsize)
    return np.frombuffer(self._data, dtype, count, begin).copy()

  def tensor(self):
    """Returns (name, shape, kind, offset)."""
    name, dimensions = self.text(NAME), self.number('<u4')
    if not 0 < dimensions <= DIMENSIONS:
      raise ValueError(f'tensor {name} has {dimensions:,} dimensions')
    sizes = [self.number('<u8') for _ in range(dimensions)]
    shape = blocks.squeezed(tuple(sizes[::-1]))
    kind, offset = self.number('<u4'), self.number('<u8')
    return name, shape, blocks.name_of(kind, name), offset


def _known(kind, key):
  if kind not in NUMBERS:
    raise ValueError(f'{keys_lib.shown(key)} is of the unknown type {kind}')
  return NUMBERS[kind]
