"""Named tensors in a file: .safetensors, or PyTorch's .pt, .pth and .bin.

Tensors are NumPy arrays; PyTorch is imported only for its own files, which are
read without running any code in them (`weights_only`).
"""

import contextlib
import math
import os
import pathlib
import zipfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from rnn_jax import errors
from rnn_jax.system import bounds
from rnn_jax.system import files

SAFE = '.safetensors'
TORCH = ('.pt', '.pth', '.bin')
NESTED = ('state_dict', 'model_state_dict', 'model')  # of a saved trainer


class Header(NamedTuple):
  """A tensor that isn't read yet."""

  shape: tuple[int, ...]


def read(
  path: str | os.PathLike,
  within: str | os.PathLike | None = None,
  check: Callable[[Mapping[str, Any]], object] | None = None,
) -> dict[str, np.ndarray]:
  """Returns the tensors of a file by name; 16-bit floats as float32.

  Args:
    path: of the file.
    within: as in files.regular.
    check: of what has a `shape`, by name; called before tensors are read.

  Raises:
    InputError: the file is missing, damaged, larger than the memory or of
      another type, or is PyTorch's and PyTorch isn't installed.
  """
  path = pathlib.Path(path)
  check_kind(path)
  if path.suffix != SAFE:
    return _read_torch(path, within, check)
  with open_safe(path, within) as file:
    names = file.keys()
    headers = {
      name: Header(tuple(file.get_slice(name).get_shape())) for name in names
    }
    if check is not None:
      check(headers)
    _check_size(path, headers)
    tensors = {name: file.get_tensor(name) for name in names}
  return {name: _wide(x) for name, x in tensors.items()}


def read_metadata(
  path: str | os.PathLike, within: str | os.PathLike | None = None
) -> dict[str, str]:
  """Returns the metadata of a .safetensors file; the arguments of `read`.

  Raises:
    InputError: the file is missing or damaged.
  """
  with open_safe(path, within) as file:
    return file.metadata() or {}


@contextlib.contextmanager
def open_safe(
  path: str | os.PathLike, within: str | os.PathLike | None = None
) -> Iterator[Any]:
  """Opens a .safetensors file, of which only the header is read.

  Args:
    path: of the file.
    within: as in files.regular.

  Raises:
    InputError: it is missing or damaged, here or where it is used.
  """
  try:
    real = files.regular(path, within)
    with safetensors.safe_open(real, framework='numpy') as file:
      yield file
  except FileNotFoundError as error:
    raise errors.InputError(f'{path}: no such file') from error
  except errors.InputError:
    raise
  except (safetensors.SafetensorError, OSError, TypeError, ValueError) as error:
    raise errors.InputError(
      f"{path} isn't a valid .safetensors file ({error}): get it again"
    ) from error


def _check_size(path, tensors):
  bounds.check(
    sum(4 * math.prod(x.shape) for x in tensors.values()),
    str(path),
    'give a smaller model, or more memory',
  )


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


def _read_torch(path, within, check):
  torch = _torch(path)
  try:
    real = files.regular(path, within)
    tensors = torch.load(
      real, map_location='cpu', weights_only=True, mmap=_is_plain_zip(real)
    )
  except FileNotFoundError as error:
    raise errors.InputError(f'{path}: no such file') from error
  except Exception as error:  # PyTorch raises any exception of pickle.
    reason = errors.first_line(error)
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
  if check is not None:
    check(tensors)
  _check_size(path, tensors)  # one may repeat a few numbers of the file
  # Copies, as the file is mapped.
  return {
    name: np.array((x.float() if x.is_floating_point() else x).detach())
    for name, x in tensors.items()
  }


def _is_plain_zip(path):
  """Whether tensors of a PyTorch file can be mapped.

  Raises:
    ValueError: members are compressed; PyTorch's own never are.
  """
  if not zipfile.is_zipfile(path):
    return False
  with zipfile.ZipFile(path) as archive:
    if any(x.compress_type != zipfile.ZIP_STORED for x in archive.infolist()):
      raise ValueError('its members are compressed')
  return True


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
