"""The tensors of a folder: one file, or shards that an index lists.

    model.safetensors                  all tensors, or
    model.safetensors.index.json       {"weight_map": {tensor: file}}
    model-00001-of-00002.safetensors   ...

A file is read tensor by tensor, and written when its tensors are joined, in
the dtypes that they were read in.
"""

import math
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import ml_dtypes  # so that NumPy has bfloat16
import numpy as np

from rnn_jax import errors
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop import tensors as tensors_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

WHOLE = 'model.safetensors'
INDEX = f'{WHOLE}.index.json'
OF_TORCH = 'pytorch_model.bin'  # of older folders
SHARD = 2**30  # bytes of a file that is written, unless a size is given
DERIVED = (  # in older files; not parameters
  '.rotary_emb.inv_freq',
  '.attn.bias',
  '.attn.masked_bias',
)
# Heads that predict later tokens, which transformers lacks too, and what reads
# images.
SKIPPED = ('mtp.', 'model.visual.')
HEAD = 'lm_head.weight'
FLOATS = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2}  # their bytes
NAMED = 1000  # tensors that a message names
SHARDS = 4096  # files of a folder
SHARDS_NAMED = 10
MAPPED = 2**25  # bytes of a file that are in memory at a time
HALVES = {'F16': 'float16', 'BF16': 'bfloat16'}
assert ml_dtypes.bfloat16


class _Held(NamedTuple):
  """A tensor in a file."""

  path: pathlib.Path
  shape: tuple[int, ...]
  dtype: str  # one of FLOATS
  array: np.ndarray | None = None  # read already, as all of PyTorch's file

  @property
  def nbytes(self) -> int:
    return FLOATS[self.dtype] * math.prod(self.shape)


class Found(NamedTuple):
  """The tensors of a folder, of which only the headers were read, by name."""

  held: dict[str, _Held]
  stored: dict[str, table.Stored]


def find(folder: pathlib.Path, rows: Sequence[table.Row]) -> Found:
  """Returns where the tensors of an architecture are.

  Args:
    folder: of the files.
    rows: of the architecture.

  Raises:
    InputError: files are missing or damaged, or tensors are missing, unexpected
      or of another shape or type; the message names them all.
  """
  held = _held(folder)
  stored = table.stored(rows, held)
  if HEAD not in stored:
    held.pop(HEAD, None)  # a copy of the embedding
  expected = {name: x.shape for name, x in stored.items()}
  bundle_lib.check(held, expected, str(folder), shown=NAMED)
  return Found(held, stored)


def read(found: Found, like: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Returns our arrays by name, float32.

  Args:
    found: the tensors.
    like: shapes of ours by name.

  Raises:
    InputError: a file is damaged.
  """
  arrays = table.zeros(like)
  later = {}
  for name, one in found.held.items():
    if one.array is None:
      later[name] = one
    else:
      found.stored[name].place(arrays, one.array)
  for path, names in _batches(later):
    with tensors_lib.open_safe(path) as file:
      for name in names:
        found.stored[name].place(arrays, file.get_tensor(name))
  return arrays


def _batches(held):
  """Yields (a file, names of tensors in it) of up to MAPPED bytes together.

  An open file is mapped, and what was read of it stays in memory.
  """
  batch, size = [], 0
  for name, one in sorted(held.items(), key=lambda pair: pair[1].path):
    nbytes = one.nbytes
    if batch and (held[batch[0]].path != one.path or size + nbytes > MAPPED):
      yield held[batch[0]].path, batch
      batch, size = [], 0
    batch.append(name)
    size += nbytes
  if batch:
    yield held[batch[0]].path, batch


def halves(found: Found) -> dict[str, str]:
  """Returns the dtypes of an architecture's tensors of 16 bits by name."""
  return {
    part.name: HALVES[one.dtype]
    for name, one in found.held.items()
    if one.dtype in HALVES
    for part in found.stored[name].parts
  }


def write(
  folder: pathlib.Path,
  stored: Mapping[str, table.Stored],
  arrays: Mapping[str, np.ndarray],
  dtypes: Mapping[str, str],
  limit: int | None = None,
) -> None:
  """Writes one file, or shards and their index.

  Args:
    folder: of the files.
    stored: the architecture's tensors by name.
    arrays: ours by name.
    dtypes: of tensors that aren't float32.
    limit: bytes of a file; a larger tensor is one by itself. None: SHARD.

  Raises:
    InputError: a file can't be written, there are too many, or a number is too
      large for a dtype.
  """
  kinds = {name: np.dtype(dtypes.get(name, 'float32')) for name in stored}
  sizes = {
    name: kinds[name].itemsize * math.prod(x.shape)
    for name, x in stored.items()
  }
  shards = _shards(sizes, limit or SHARD)
  if len(shards) > SHARDS:
    errors.refuse(
      '--max_shard_size', limit, f'it gives {len(shards):,} files: give more'
    )
  names = [WHOLE]
  if len(shards) > 1:
    names = [
      f'model-{n + 1:05}-of-{len(shards):05}.safetensors'
      for n in range(len(shards))
    ]
    where = {
      tensor: name
      for name, shard in zip(names, shards, strict=True)
      for tensor in shard
    }
    size = sum(sizes.values())
    index = {'metadata': {'total_size': size}, 'weight_map': where}
    keys_lib.write(folder / INDEX, index)
  for name, shard in zip(names, shards, strict=True):
    joined = {x: _cast(x, stored[x].take(arrays), kinds[x]) for x in shard}
    tensors_lib.write(folder / name, joined, {'format': 'pt'})


def _cast(name, x, dtype):
  with np.errstate(over='ignore'):
    y = x.astype(dtype, copy=False)
  if not np.array_equal(np.isfinite(x), np.isfinite(y)):
    raise errors.InputError(
      f'{name} has numbers up to {np.abs(x).max():.2g}, too large for {dtype}: '
      "give --dtype=bfloat16, or 'float32'"
    )
  return y


def _shards(sizes, limit):
  """Returns the names in groups of up to `limit` bytes, or of one."""
  shards, room = [], 0
  for name, size in sizes.items():
    if not shards or size > room:
      shards.append([])
      room = limit
    shards[-1].append(name)
    room -= size
  return shards


def _held(folder):
  """Returns where each tensor is, except derived and skipped ones."""
  paths, where = [folder / WHOLE], None
  if (folder / INDEX).exists():
    keys = keys_lib.read(folder / INDEX, files.LIMIT)
    where = keys.section('weight_map').values
    paths = _files(folder, where)
  elif not paths[0].exists() and (folder / OF_TORCH).exists():
    return _of_torch(folder / OF_TORCH)
  if lacking := [path.name for path in paths if not path.exists()]:
    also = '' if where else f', and no {INDEX}'
    listed = ', '.join(lacking[:SHARDS_NAMED])
    raise errors.InputError(f'{folder}: it has no {listed}{also}')
  held = {}
  for path in paths:
    with tensors_lib.open_safe(path) as file:
      for name in [*file.keys()]:
        if where is not None and where.get(name) != path.name:
          continue
        if _is_left_out(name):
          continue
        one = file.get_slice(name)
        _check_float(path, name, one.get_dtype())
        held[name] = _Held(path, tuple(one.get_shape()), one.get_dtype())
  return held


def _is_left_out(name):
  return name.endswith(DERIVED) or name.startswith(SKIPPED)


def _of_torch(path):
  return {
    name: _Held(path, x.shape, 'F32', x)
    for name, x in tensors_lib.read(path).items()
    if not _is_left_out(name)
  }


def _files(folder, where):
  for name in where.values():
    # A folder's index names files of that folder only.
    plain = isinstance(name, str) and pathlib.PurePath(name).name == name
    if not plain or not name:
      raise errors.InputError(
        f'{folder / INDEX}: weight_map: {keys_lib.shown(name)} is not a file '
        'name: get it again'
      )
  if not where:
    raise errors.InputError(f'{folder / INDEX}: no weight_map: get it again')
  names = sorted({*where.values()})
  if len(names) > SHARDS:
    raise errors.InputError(
      f'{folder / INDEX}: weight_map: {len(names):,} files, and {SHARDS:,} are '
      'enough: get it again'
    )
  return [folder / name for name in names]


def _check_float(path, name, dtype):
  if dtype not in FLOATS:
    raise errors.InputError(
      f'{path}: {name} is {dtype}: only {[*FLOATS]} can be read'
    )
