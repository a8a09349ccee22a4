"""Writes a GGUF file, or its parts, by package `gguf`, a tensor at a time."""

import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np

from rnn_jax import errors
from rnn_jax.interop.gguf import blocks

TYPES = {
  bool: gguf.GGUFValueType.BOOL,
  int: gguf.GGUFValueType.UINT32,
  float: gguf.GGUFValueType.FLOAT32,
  str: gguf.GGUFValueType.STRING,
}
IN_ARRAYS = TYPES | {int: gguf.GGUFValueType.INT32}
QUANTIZATION = 2  # version of the layouts of blocks
PARTS = 512  # that are open at once


def write(
  path: pathlib.Path,
  architecture: str,
  values: Mapping[str, Any],
  tensors: Mapping[str, tuple[tuple[int, ...], Callable[[], np.ndarray]]],
  form: str,
  limit: int | None = None,
) -> None:
  """Writes a file, or several named as llama-gguf-split does (parts.py).

  Args:
    path: of the file.
    architecture: of llama.cpp.
    values: by key: a flag, a number, a text, or a list of these.
    tensors: {name: (shape, what returns the float32 numbers)}.
    form: of matrices, one of blocks.FORMATS.
    limit: bytes of the tensors of a file; a larger tensor is one by itself, and
      the first file has the values too. None: all are in one.

  Raises:
    InputError: a number is too large for the format, or there are too many
      files.
  """
  kinds = {
    name: blocks.kind_of(name, shape, form)
    for name, (shape, _) in tensors.items()
  }
  sizes = {
    name: blocks.nbytes(shape, kinds[name], name)
    for name, (shape, _) in tensors.items()
  }
  parted = limit is not None and sum(sizes.values()) > limit
  writer = gguf.GGUFWriter(
    path, architecture, split_max_size=limit if parted else 0
  )
  writer.add_type(gguf.GGUFType.MODEL)
  writer.add_file_type(blocks.FORMATS[form][1])
  if any(not kind.endswith(('F32', 'F16')) for kind in kinds.values()):
    writer.add_quantization_version(QUANTIZATION)
  for key, value in values.items():
    _add(writer, key, value)
  for name, (shape, _) in tensors.items():
    writer.add_tensor_info(
      name,
      shape,
      np.dtype(np.float32),
      sizes[name],
      gguf.GGMLQuantizationType[kinds[name]],
    )
  if (count := len(writer.tensors)) > PARTS:
    errors.refuse(
      '--max_shard_size', limit, f'it gives {count:,} files: give more'
    )
  try:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, (_, take) in tensors.items():
      writer.write_tensor_data(blocks.encode(take(), kinds[name], name))
  finally:
    writer.close()


def _add(writer, key, value):
  if isinstance(value, list):
    kind = IN_ARRAYS[type(value[0])]
    writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, kind)
  else:
    writer.add_key_value(key, value, TYPES[type(value)])
