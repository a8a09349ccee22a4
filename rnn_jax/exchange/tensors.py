"""Named tensors in a file: .safetensors, or PyTorch's .pt, .pth and .bin.

Everything here is NumPy; PyTorch is imported for its own files alone, which
are read without running any code in them (`weights_only`).
"""

import os
import pathlib
from collections.abc import Mapping

import numpy as np
import safetensors
import safetensors.numpy

from rnn_jax import errors

SAFE = '.safetensors'
TORCH = ('.pt', '.pth', '.bin')
NESTED = ('state_dict', 'model_state_dict', 'model')  # of a saved trainer


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the tensors of a file by name; floats of 16 bits as float32.

  Raises:
    InputError: no such file, one that is damaged or of another kind, or
      PyTorch's where there is no PyTorch.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.InputError(f'{path}: there is no such file')
  check_kind(path)
  found = _read_safe(path)[0] if path.suffix == SAFE else _read_torch(path)
  return {name: _wide(x) for name, x in found.items()}


def read_metadata(path: str | os.PathLike) -> dict[str, str]:
  """Returns the metadata of a .safetensors file.

  Raises:
    InputError: no such file, or a damaged one.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.InputError(f'{path}: there is no such file')
  return _read_safe(path)[1]


def write(
  path: str | os.PathLike,
  found: Mapping[str, np.ndarray],
  metadata: Mapping[str, str] | None = None,
) -> None:
  """Writes tensors, and metadata in a .safetensors file alone.

  The file is whole or absent at any time.

  Raises:
    InputError: a name of another kind, a file that can't be written, or
      PyTorch's where there is no PyTorch.
  """
  path = pathlib.Path(path)
  check_kind(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  found = {name: np.ascontiguousarray(x) for name, x in found.items()}
  try:
    if path.suffix == SAFE:
      safetensors.numpy.save_file(found, part, dict(metadata or {}) or None)
    else:
      torch = _torch(path)
      torch.save({name: torch.from_numpy(x) for name, x in found.items()}, part)
    os.replace(part, path)
  except (OSError, safetensors.SafetensorError) as error:
    raise errors.InputError(f'{path}: {error}') from error
  finally:
    part.unlink(missing_ok=True)


def check_kind(path: pathlib.Path) -> None:
  """Raises InputError unless a path's name says what file it is."""
  if path.suffix not in (SAFE, *TORCH):
    raise errors.InputError(
      f'{path}: name a file that ends in one of {(SAFE, *TORCH)}'
    )


def _read_safe(path):
  try:
    with safetensors.safe_open(path, framework='numpy') as file:
      names = file.keys()
      found = {name: file.get_tensor(name) for name in names}
      return found, file.metadata() or {}
  except (safetensors.SafetensorError, OSError, TypeError) as error:
    raise errors.InputError(
      f'{path} is no sound .safetensors file ({error}): get it anew'
    ) from error


def _read_torch(path):
  torch = _torch(path)
  try:
    found = torch.load(path, map_location='cpu', weights_only=True)
  except Exception as error:  # PyTorch raises whatever pickle meets.
    reason = str(error).partition('\n')[0]
    raise errors.InputError(
      f"{path} is no file of PyTorch's tensors ({reason}): save "
      'model.state_dict()'
    ) from error
  for name in NESTED:
    if isinstance(found, dict) and isinstance(found.get(name), dict):
      found = found[name]
  if not isinstance(found, dict) or not all(
    isinstance(x, torch.Tensor) for x in found.values()
  ):
    raise errors.InputError(
      f'{path} holds other things than tensors by name: save model.state_dict()'
    )
  found = {name: x.detach() for name, x in found.items()}
  return {
    name: (x.float() if x.is_floating_point() else x).numpy()
    for name, x in found.items()
  }


def _torch(path):
  try:
    import torch
  except ImportError as error:
    raise errors.InputError(
      f'{path}: it takes the package torch, which is not installed: pip '
      f'install torch, or use a {SAFE} file'
    ) from error
  return torch


def _wide(x):
  small = x.dtype.kind not in 'iub' and x.dtype.itemsize < 4
  return x.astype(np.float32) if small else x
