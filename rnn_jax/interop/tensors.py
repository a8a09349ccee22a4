"""Named tensors in a file: .safetensors, or PyTorch's .pt, .pth and .bin.

Tensors are NumPy arrays; PyTorch is imported only for its own files, which are
read without running any code in them (`weights_only`).
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
  """Returns the tensors of a file by name; 16-bit floats as float32.

  Raises:
    InputError: the file is missing, damaged or of another type, or is
      PyTorch's and PyTorch isn't installed.
  """
  path = _existing(path)
  check_kind(path)
  tensors = _read_safe(path)[0] if path.suffix == SAFE else _read_torch(path)
  return {name: _wide(x) for name, x in tensors.items()}


def read_metadata(path: str | os.PathLike) -> dict[str, str]:
  """Returns the metadata of a .safetensors file.

  Raises:
    InputError: the file is missing or damaged.
  """
  return _read_safe(_existing(path))[1]


def _existing(path):
  path = pathlib.Path(path)
  if not path.is_file():
    raise errors.InputError(f'{path}: no such file')
  return path


def write(
  path: str | os.PathLike,
  tensors: Mapping[str, np.ndarray],
  metadata: Mapping[str, str] | None = None,
) -> None:
  """Writes tensors; only a .safetensors file has metadata.

  The file is complete or absent at any time.

  Raises:
    InputError: the name is of another type, the file can't be written, or it
      is PyTorch's and PyTorch isn't installed.
  """
  path = pathlib.Path(path)
  check_kind(path)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  tensors = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
  try:
    if path.suffix == SAFE:
      part.touch()
      mode = part.stat().st_mode  # by the umask; save_file makes it private
      safetensors.numpy.save_file(tensors, part, dict(metadata or {}) or None)
      part.chmod(mode)
    else:
      torch = _torch(path)
      values = {name: torch.from_numpy(x) for name, x in tensors.items()}
      torch.save(values, part)
    os.replace(part, path)
  except (OSError, safetensors.SafetensorError) as error:
    raise errors.InputError(f'{path}: {error}') from error
  finally:
    part.unlink(missing_ok=True)


def check_kind(path: pathlib.Path) -> None:
  """Raises InputError unless a path's suffix is one of a tensor file."""
  if path.suffix not in (SAFE, *TORCH):
    raise errors.InputError(
      f'{path}: name a file that ends in one of {(SAFE, *TORCH)}'
    )


def _read_safe(path):
  try:
    with safetensors.safe_open(path, framework='numpy') as file:
      names = file.keys()
      tensors = {name: file.get_tensor(name) for name in names}
      return tensors, file.metadata() or {}
  except (safetensors.SafetensorError, OSError, TypeError) as error:
    raise errors.InputError(
      f"{path} isn't a valid .safetensors file ({error}): get it again"
    ) from error


def _read_torch(path):
  torch = _torch(path)
  try:
    tensors = torch.load(path, map_location='cpu', weights_only=True)
  except Exception as error:  # PyTorch raises any exception of pickle.
    reason = str(error).partition('\n')[0]
    raise errors.InputError(
      f"{path} isn't a file of PyTorch's tensors ({reason}): save "
      'model.state_dict()'
    ) from error
  for name in NESTED:
    if isinstance(tensors, dict) and isinstance(tensors.get(name), dict):
      tensors = tensors[name]
  if not isinstance(tensors, dict) or not all(
    isinstance(x, torch.Tensor) for x in tensors.values()
  ):
    raise errors.InputError(
      f'{path} has other things than named tensors: save model.state_dict()'
    )
  return {
    name: (x.float() if x.is_floating_point() else x).detach().numpy()
    for name, x in tensors.items()
  }


def _torch(path):
  try:
    import torch
  except ImportError as error:
    raise errors.InputError(
      f'{path}: the package torch is not installed: pip install torch, or use '
      f'a {SAFE} file'
    ) from error
  return torch


def _wide(x):
  small = x.dtype.kind not in 'iub' and x.dtype.itemsize < 4
  return x.astype(np.float32) if small else x
