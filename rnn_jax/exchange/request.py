"""What is asked of a format, and which formats there are.

A format is a file of rnn_jax/exchange/formats with `read(source)`, which
returns a bundle, or `write(bundle, target)`, or both.
"""

import dataclasses
import importlib
import pathlib
import pkgutil
import types
from typing import Literal

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import tokenizer as tokenizer_lib
from rnn_jax.exchange import formats


@dataclasses.dataclass(frozen=True)
class Source:
  """What to read, and what the user says of it beside."""

  path: pathlib.Path
  config: config_lib.Config | None = None
  tokenizer: tokenizer_lib.Tokenizer | None = None

  def refuse(self, *names: str) -> None:
    """Raises InputError where one of these was given: the files have it."""
    _refuse_given(self, names, 'the files themselves say it')


@dataclasses.dataclass(frozen=True)
class Target:
  """Where to write, and how, where there is a choice."""

  path: pathlib.Path
  batch_size: int | None = None
  platforms: tuple[str, ...] | None = None

  def refuse(self, *names: str) -> None:
    """Raises InputError where one of these was given: it has no effect."""
    _refuse_given(self, names, 'this --format has no use for it')


def find(name: str, direction: Literal['read', 'write']) -> types.ModuleType:
  """Returns the module of a format that can be read, or written.

  Raises:
    InputError: there is none; the message lists those that exist.
  """
  modules = pkgutil.iter_modules(formats.__path__)
  able = {}
  for found in sorted(module.name for module in modules):
    module = importlib.import_module(f'{formats.__name__}.{found}')
    if hasattr(module, direction):
      able[found] = module
  if name not in able:
    raise errors.InputError(f'--format={name!r}: choose one of {[*able]}')
  return able[name]


def check_absent(path: pathlib.Path) -> None:
  """Raises InputError where there is something already."""
  if path.exists():
    raise errors.InputError(
      f'--output={path} is there already: remove it, or give another name'
    )
  if not path.absolute().parent.is_dir():
    raise errors.InputError(
      f'--output={path}: there is no folder {path.absolute().parent}'
    )


def _refuse_given(request, names, reason):
  for name in names:
    if getattr(request, name) is not None:
      raise errors.InputError(f'--{name} is given, and {reason}: leave it out')
