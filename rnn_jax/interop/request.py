"""Requests to a format, and the list of formats.

A format is a file of rnn_jax/interop/formats with `read(source)`, which returns
a bundle, or `write(bundle, target)`, or both.
"""

import contextlib
import dataclasses
import importlib
import pathlib
import pkgutil
import re
import types
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Literal

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import formats
from rnn_jax.system import files


@dataclasses.dataclass(frozen=True)
class Source:
  """What to read, with what the user adds to it."""

  path: pathlib.Path
  config: config_lib.Config | None = None
  tokenizer: tokenizer_lib.Tokenizer | None = None

  def refuse(self, *names: str) -> None:
    """Raises InputError if one of these was given: the files have it."""
    _refuse_given(self, names, 'the files have their own')


@dataclasses.dataclass(frozen=True)
class Target:
  """Where to write, and the options of some formats."""

  path: pathlib.Path
  batch_size: int | None = None
  platforms: tuple[str, ...] | None = None
  dtype: str | None = None
  opset: int | None = None
  license: str | None = None
  max_shard_size: str | None = None  # of a file, as `nbytes` reads it
  workdir: pathlib.Path | None = None  # of the run, for its model card

  def refuse(self, *names: str) -> None:
    """Raises InputError if one of these was given: it has no effect."""
    _refuse_given(self, names, "this --format doesn't use it")

  def dtype_of(self, known: Sequence[str]) -> str | None:
    """Returns the dtype, or raises InputError unless a format knows it."""
    if self.dtype is not None and self.dtype not in known:
      errors.refuse(
        '--dtype', self.dtype, f'this --format has {[*known]}: choose one'
      )
    return self.dtype

  @contextlib.contextmanager
  def folder(self) -> Iterator[pathlib.Path]:
    """Inside it a folder is filled, which is at the path afterwards.

    Raises:
      InputError: it can't be written.
    """
    try:
      with files.whole_folder(self.path) as part:
        yield part
    except OSError as error:
      raise errors.InputError(f'--output={self.path}: {error}') from error


SIZE = re.compile(r'(\d{1,15})([KMG]?)B?', re.IGNORECASE)
UNITS = {'': 1, 'K': 10**3, 'M': 10**6, 'G': 10**9}
OF_MODEL = ('model', 'cell')  # sections that tensors depend on


def completed(
  raw: dict[str, Any], given: config_lib.Config | None
) -> dict[str, Any]:
  """Returns a raw config with the other sections of a config, if it is given.

  Sections `model` and `cell` stay.
  """
  sections = config_lib.to_dict(given) if given else {}
  own = {name: raw[name] for name in OF_MODEL}
  filled = sections.get('given', {})  # {'data.length': ..., ...}
  own['given'] = {
    key: value
    for key, value in filled.items()
    if key.partition('.')[0] not in OF_MODEL
  }
  return raw | sections | own


def find(name: str, direction: Literal['read', 'write']) -> types.ModuleType:
  """Returns the module of a format that can be read, or written.

  Raises:
    InputError: it doesn't exist; the message lists those that do.
  """
  modules = pkgutil.iter_modules(formats.__path__)
  able = {}
  for known in sorted(module.name for module in modules):
    module = importlib.import_module(f'{formats.__name__}.{known}')
    if hasattr(module, direction):
      able[known] = module
  if name not in able:
    errors.refuse('--format', name, f'choose one of {[*able]}')
  return able[name]


def nbytes(size: str) -> int:
  """Returns the bytes of --max_shard_size: '2GB', '500M', or their number.

  Raises:
    InputError: it isn't a size.
  """
  match = SIZE.fullmatch(size)
  if match is None or not int(match[1]):
    errors.refuse('--max_shard_size', size, "give a size, such as '2GB'")
  return int(match[1]) * UNITS[match[2].upper()]


def check_absent(path: pathlib.Path) -> None:
  """Raises InputError if a path exists or can't be created."""
  if path.exists():
    raise errors.InputError(
      f'--output={path} already exists: remove it, or give another name'
    )
  if not path.absolute().parent.is_dir():
    raise errors.InputError(
      f'--output={path}: there is no folder {path.absolute().parent}'
    )


def _refuse_given(request, names, reason):
  for name in names:
    if getattr(request, name) is not None:
      raise errors.InputError(f'--{name} is given, and {reason}: leave it out')
