"""Makes a source distribution and wheels with prebuilt libraries.

    pip install -e '.[release]'
    python -m rnn_jax.native.wheel dist [--targets=linux-x86_64,macos-arm64]

writes dist/rnn_jax-VERSION.tar.gz and dist/rnn_jax-VERSION-py3-none-TAG.whl for
each of TARGETS, on any machine: Zig's Clang has the headers of all of them, and
its C++ library, which is linked in. They need the oldest systems that jaxlib
supports. The interface is that of the installed jaxlib; newer ones run it too.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from rnn_jax.native import build
from rnn_jax.native import cache
from rnn_jax.native import library
from rnn_jax.native import prebuilt
from rnn_jax.system import packaging

ROOT = pathlib.Path(__file__).parents[2]
FILES = 'pyproject.toml', 'README.md', 'LICENSE', 'CHANGELOG.md'
FOLDERS = 'rnn_jax', *packaging.FOLDERS
LARGEST = 16 << 20  # bytes of a library


class Target(NamedTuple):
  """A kind of machine."""

  machine: str  # as Python names it there, a key of prebuilt.LEVELS
  triple: str  # Zig's, with the oldest version of the system
  tag: str  # of a wheel
  link_flags: tuple[str, ...]


TARGETS = {
  'linux-x86_64': Target(
    'x86_64',
    'x86_64-linux-gnu.2.27',
    'manylinux_2_27_x86_64',
    ('-Wl,-s',),
  ),
  'linux-aarch64': Target(
    'aarch64',
    'aarch64-linux-gnu.2.27',
    'manylinux_2_27_aarch64',
    ('-Wl,-s',),
  ),
  'macos-arm64': Target(
    'arm64',
    'aarch64-macos.11.0',
    'macosx_11_0_arm64',
    (
      '-undefined',
      'dynamic_lookup',
      '-Wl,-install_name,@rpath/rnn_jax.so',
      '-Wl,-s',
    ),
  ),
}


def make(folder: pathlib.Path, targets: list[str]) -> None:
  """Writes a source distribution and the targets' wheels into `folder`.

  Raises:
    cache.UnavailableError: this isn't a checkout, a library doesn't compile, or
      it isn't what its target needs.
  """
  if not (ROOT / 'pyproject.toml').exists():
    raise cache.UnavailableError(f'{ROOT} is not a checkout')
  folder = folder.absolute()
  with tempfile.TemporaryDirectory() as name:
    copy = _copy(pathlib.Path(name))
    _build('--sdist', folder, copy)
  for target in targets:
    with tempfile.TemporaryDirectory() as name:
      copy, own = _copy(pathlib.Path(name)), TARGETS[target]
      to = copy / prebuilt.FOLDER.relative_to(ROOT)
      to.mkdir()
      for level in prebuilt.LEVELS[own.machine]:
        _compile(own, level, to)
      tag = f'-C--build-option=--plat-name={own.tag}'
      _build('--wheel', folder, copy, tag)
  files = map(str, folder.glob('rnn_jax-*'))
  _run('-m', 'twine', 'check', '--strict', *files)


def _copy(to):
  """Copies what a distribution is made from. Returns the folder."""
  ignore = shutil.ignore_patterns('__pycache__', 'prebuilt')
  for source in FOLDERS:
    shutil.copytree(ROOT / source, to / source, ignore=ignore)
  for file in FILES:
    shutil.copy(ROOT / file, to)
  return to


def _build(kind, folder, source, *options):
  command = ('-m', 'build', kind, '--no-isolation', '--outdir', str(folder))
  _run(*command, *options, str(source))


def _run(*arguments):
  subprocess.run((sys.executable, *arguments), check=True)


def _compile(target, level, to):
  """Writes a level's files."""
  command = (sys.executable, '-m', 'ziglang', 'c++', '-target', target.triple)
  cpu = level.replace('armv8-a', 'generic').replace('-', '_')  # Zig's name
  with tempfile.TemporaryDirectory() as name:
    result = pathlib.Path(name, f'{level}.so')
    build.compile_and_link(
      library.FOLDER,
      library.SOURCES,
      command,
      (*build.FLAGS, '-g0', f'-mcpu={cpu}'),
      result,
      target.link_flags,
    )
    _check(target, result)
    shutil.copy(result, to)
    about = {
      'sha256': cache.sha256(result),
      'interface': prebuilt.interface(),
      'sources': build.digest_of(library.FOLDER),
    }
    (to / f'{level}.json').write_text(json.dumps(about), encoding='utf-8')


def _check(target, path):
  """Checks a library's handlers, what it needs of the system, and its size."""
  import lief

  parsed = lief.parse(str(path))
  exported = {symbol.name.lstrip('_') for symbol in parsed.exported_functions}
  wrong = [
    f'it lacks {name}' for name in library.TARGETS if name not in exported
  ]
  if isinstance(parsed, lief.ELF.Binary):
    newest = tuple(map(int, target.triple.rpartition('gnu.')[2].split('.')))
    wrong += [
      f'it needs {need.name}'
      for version in parsed.symbols_version_requirement
      for need in version.get_auxiliary_symbols()
      if need.name.startswith('GLIBC_') and _version(need.name) > newest
    ]
  else:
    oldest = target.triple.rpartition('macos.')[2]
    minos = '.'.join(map(str, parsed.build_version.minos[:2]))
    wrong += [f'it needs macOS {minos}'] * (minos != oldest)
  content = path.read_bytes()
  for where in (ROOT, pathlib.Path.home(), path.parent):
    if str(where).encode() in content:
      wrong.append(f'it holds the path {where}')
  if len(content) > LARGEST:
    wrong.append(f'it has {len(content):,} bytes')
  if wrong:
    raise cache.UnavailableError(f'{target.tag}, {path.name}: {wrong[0]}')


def _version(name):
  return tuple(map(int, name.rpartition('_')[2].split('.')))


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description='Makes distributions.')
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('--targets', default=','.join(TARGETS))
  given = parser.parse_args()
  wanted = given.targets.split(',')
  if unknown := [name for name in wanted if name not in TARGETS]:
    parser.error(f'--targets={unknown[0]}: choose from {", ".join(TARGETS)}')
  make(given.folder, wanted)
