"""The build backend that pyproject.toml names: setuptools, and two additions.

It runs when pip builds, and imports nothing else of rnn_jax.

A wheel gets the commands and the configs: the folders become
rnn_jax/commands/launch and rnn_jax/commands/configs; see shipped.py.

An editable install uses those of the checkout, and gets a package `rnn_jax`
that loads the checkout's. setuptools' own import hook is asked last: next to a
clone, whose folder has the same name, Python takes that folder for a namespace
package and never asks it.
"""

import base64
import hashlib
import os
import pathlib
import shutil
import zipfile
from collections.abc import Mapping
from typing import Any

from setuptools import build_meta
from setuptools.command import build_py

FOLDERS = ('launch', 'configs')
HOOK = '__editable__'  # how setuptools' files of an editable install begin
LOADER = '''"""Loads rnn_jax from the checkout that it was installed from."""

import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path({folder!r})
if not (FOLDER / '__init__.py').is_file():
  raise ImportError(
    f'rnn_jax was installed from {{FOLDER.parent}}, which is gone: install it '
    'again, pip install -e CHECKOUT'
  )
spec = importlib.util.spec_from_file_location(
  'rnn_jax',
  FOLDER / '__init__.py',
  submodule_search_locations=[str(FOLDER)],
)
sys.modules['rnn_jax'] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules['rnn_jax'])
'''

build_sdist = build_meta.build_sdist
build_wheel = build_meta.build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_editable = (
  build_meta.prepare_metadata_for_build_editable
)
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel


def build_editable(
  wheel_directory: str,
  config_settings: Mapping[str, Any] | None = None,
  metadata_directory: str | None = None,
) -> str:
  """Writes the wheel of an editable install. Returns its name.

  An import hook of setuptools is replaced by LOADER; the links and paths of its
  modes `strict` and `compat` stay.
  """
  name = build_meta.build_editable(
    wheel_directory, config_settings, metadata_directory
  )
  path = pathlib.Path(wheel_directory, name)
  with zipfile.ZipFile(path) as wheel:
    files = {x: wheel.read(x) for x in wheel.namelist()}
  if any(x.startswith(HOOK) and x.endswith('.py') for x in files):
    files = {x: y for x, y in files.items() if not x.startswith(HOOK)}
    folder = str(pathlib.Path('rnn_jax').absolute())
    files['rnn_jax/__init__.py'] = LOADER.format(folder=folder).encode()
    _write_wheel(path, files)
  return name


def _write_wheel(path, files):
  (record,) = (x for x in files if x.endswith('.dist-info/RECORD'))
  del files[record]
  lines = [f'{x},sha256={_digest(y)},{len(y)}' for x, y in files.items()]
  files[record] = '\n'.join([*lines, f'{record},,', '']).encode()
  written = path.with_suffix('.part')
  with zipfile.ZipFile(written, 'w', zipfile.ZIP_DEFLATED) as wheel:
    for name, content in files.items():
      wheel.writestr(name, content)
  os.replace(written, path)


def _digest(content):
  digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
  return digest.rstrip(b'=').decode()


class BuildPy(build_py.build_py):
  """Builds the package, then copies FOLDERS into it."""

  def run(self) -> None:
    """Writes the package to build_lib."""
    super().run()
    if self.editable_mode:
      return
    root = pathlib.Path(self.build_lib, 'rnn_jax', 'commands')
    shutil.rmtree(root, ignore_errors=True)
    for source in _sources():
      to = root / source
      to.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(source, to)

  def get_source_files(self) -> list[str]:
    """Returns what a source distribution needs."""
    return [*super().get_source_files(), *map(str, _sources())]


def _sources():
  """The files to copy, from the project's root, where builds run.

  All of the folders, as a config may name a sample next to it, but what Python
  and editors leave.
  """
  return [
    path
    for folder in FOLDERS
    for path in sorted(pathlib.Path(folder).rglob('*'))
    if path.is_file() and path.suffix != '.pyc' and path.name[0] != '.'
  ]
