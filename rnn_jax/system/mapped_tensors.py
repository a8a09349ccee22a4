"""Named arrays in a .safetensors file, as they are used: mapped, not read.

    8 bytes         length of the header, little-endian
    header          JSON: {name: {dtype, shape, data_offsets}}, __metadata__
    data            the arrays, one right after the other

The data begin at a multiple of ALIGNED bytes, and so does each array whose size
is one: JAX then uses the pages of the file as they are, on a CPU. The others
are last, and copied. `sha256` of the metadata is the digest of the header
without it, and of the data.

A file is complete or absent at any time, and a new one replaces it: a process
that has mapped the old one keeps it.
Source: github.com/huggingface/safetensors, 2026.
"""

import hashlib
import json
import math
import mmap
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from rnn_jax.system import files
from rnn_jax.system import large_pages

SUFFIX = '.safetensors'
ALIGNED = large_pages.ALIGNED
METADATA = '__metadata__'
DIGEST = 'sha256'
DTYPES = {
  'F32': np.dtype(np.float32),
  'F16': np.dtype(np.float16),
  'BF16': np.dtype(ml_dtypes.bfloat16),
  'I8': np.dtype(np.int8),
  'U8': np.dtype(np.uint8),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Tensors:
  """The arrays of a file.

  Attributes:
    metadata: texts by name.
    arrays: read-only arrays by name, in the pages of the file.
  """

  def __init__(
    self, path: str | os.PathLike, within: str | os.PathLike | None = None
  ) -> None:
    """Opens a file; only its header is read.

    Args:
      path: of the file.
      within: as in files.regular.

    Raises:
      ValueError: it isn't such a file, or cut short.
      OSError: it can't be read.
    """
    with files.open_regular(path, within) as file:
      self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    large_pages.advise(self._mapped)
    length = int.from_bytes(self._mapped[:8], 'little')
    left = len(self._mapped) - 8
    if not 2 <= length <= min(left, files.SMALL):
      raise ValueError(f'a header of {length:,} bytes, of {left:,}')
    self._begin = 8 + length
    self._header = files.from_json(self._mapped[8 : self._begin])
    if not isinstance(self._header, dict):
      raise ValueError('its header is no object')
    self.metadata = self._header.pop(METADATA, {})
    if not isinstance(self.metadata, dict) or not all(
      isinstance(text, str) for text in self.metadata.values()
    ):
      raise ValueError('its metadata are no texts')
    self.arrays = dict(self._arrays())

  def check_digest(self) -> None:
    """Reads all of the file.

    Raises:
      ValueError: it isn't what was written.
    """
    digest = _digest(self._header, self.metadata)
    digest.update(memoryview(self._mapped)[self._begin :])
    if digest.hexdigest() != self.metadata.get(DIGEST):
      raise ValueError('its SHA-256 is another one')

  def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
    end = 0
    parts = [(*_entry(name, x), name) for name, x in self._header.items()]
    for begin, size, dtype, shape, name in sorted(parts, key=lambda x: x[:2]):
      if begin != end or begin + size > len(self._mapped) - self._begin:
        raise ValueError(f'{name!r:.80} is not where the one before it ends')
      end = begin + size
      count = size // dtype.itemsize
      offset = self._begin + begin
      array = np.frombuffer(self._mapped, dtype, count, offset)
      yield name, array.reshape(shape)
    if end != len(self._mapped) - self._begin:
      raise ValueError('its arrays are not all of it')


def _entry(name, entry):
  """Returns (begin, size in bytes, dtype, shape) of an array."""
  try:
    dtype = DTYPES[entry['dtype']]
    shape, (begin, end) = entry['shape'], entry['data_offsets']
    numbers = [*shape, begin, end]
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(f'{name!r:.80}: {error!r:.80}') from None
  if any(type(n) is not int or n < 0 for n in numbers):
    raise ValueError(f'{name!r:.80} has the numbers {numbers!r:.80}')
  size = dtype.itemsize * math.prod(shape)
  if end - begin != size:
    raise ValueError(f'{name!r:.80} has {end - begin:,} bytes, not {size:,}')
  return begin, size, dtype, shape


def write(
  path: str | os.PathLike,
  arrays: Mapping[str, np.ndarray],
  metadata: Mapping[str, str],
) -> None:
  """Writes a file, in place of an existing one.

  Args:
    path: of the file.
    arrays: of DTYPES, by name.
    metadata: texts by name.

  Raises:
    OSError: it can't be written.
  """
  names = sorted(arrays, key=lambda name: (arrays[name].nbytes % ALIGNED, name))
  header: dict[str, Any] = {}
  end = 0
  for name in names:
    x, begin = arrays[name], end
    end += x.nbytes
    header[name] = {
      'dtype': NAMES[x.dtype],
      'shape': [*x.shape],
      'data_offsets': [begin, end],
    }
  digest = _digest(header, metadata)
  for name in names:
    digest.update(_bytes(arrays[name]))
  whole = {METADATA: {**metadata, DIGEST: digest.hexdigest()}, **header}
  text = json.dumps(whole).encode()
  text += b' ' * (-(len(text) + 8) % ALIGNED)
  path = pathlib.Path(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  try:
    with open(part, 'wb') as file:
      file.write(len(text).to_bytes(8, 'little') + text)
      for name in names:
        file.write(_bytes(arrays[name]))
      file.flush()
      os.fsync(file.fileno())
    os.replace(part, path)
  finally:
    part.unlink(missing_ok=True)


def _digest(header, metadata):
  known = {name: x for name, x in metadata.items() if name != DIGEST}
  text = json.dumps([header, known], sort_keys=True)
  return hashlib.sha256(text.encode())


def _bytes(x):
  return memoryview(np.ascontiguousarray(x).reshape(-1).view(np.uint8))
