"""Makes a wheel with prebuilt libraries, from a checkout.

    python -m rnn_jax.native.wheel dist

writes dist/rnn_jax-VERSION-py3-none-manylinux_2_N_MACHINE.whl. The compiler is
$CXX, else the system's; with CXX=aarch64-linux-gnu-g++ the wheel is for arm64.
N is the newest glibc that the libraries need: for older systems compile on an
older one. The interface is that of the installed jaxlib; newer ones run it too.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from rnn_jax.native import build
from rnn_jax.native import cache
from rnn_jax.native import library
from rnn_jax.native import prebuilt
from rnn_jax.system import packaging

ROOT = pathlib.Path(__file__).parents[2]
FILES = ('pyproject.toml', 'README.md', 'LICENSE')
FOLDERS = ('rnn_jax', *packaging.FOLDERS)
# The C++ standard library is linked in, and hidden from jaxlib's.
LINK_FLAGS = ('-static-libstdc++', '-static-libgcc', '-Wl,--exclude-libs,ALL')


def make(folder: pathlib.Path) -> None:
  """Writes a wheel for the compiler's machine into `folder`.

  Raises:
    cache.UnavailableError: there is no compiler, it fails, or its target has no
      levels.
  """
  if not (ROOT / 'pyproject.toml').exists():
    raise cache.UnavailableError(f'{ROOT} is not a checkout')
  command = build.compiler().command
  machine = _output(*command, '-dumpmachine').partition('-')[0]
  if machine not in prebuilt.LEVELS:
    raise cache.UnavailableError(f'no wheels are made for {machine}')
  with tempfile.TemporaryDirectory() as name:
    copy = pathlib.Path(name)
    ignore = shutil.ignore_patterns('__pycache__', 'prebuilt')
    for source in FOLDERS:
      shutil.copytree(ROOT / source, copy / source, ignore=ignore)
    for file in FILES:
      shutil.copy(ROOT / file, copy)
    to = copy / prebuilt.FOLDER.relative_to(ROOT)
    to.mkdir()
    glibc = max(
      _compile(command, level, to) for level in prebuilt.LEVELS[machine]
    )
    tag = 'manylinux_{}_{}_{}'.format(*glibc, machine)
    option = f'--config-settings=--build-option=--plat-name={tag}'
    pip = (sys.executable, '-m', 'pip', 'wheel', '--no-deps', option)
    subprocess.run((*pip, '--wheel-dir', folder.absolute(), copy), check=True)


def _compile(command, level, to):
  """Writes a level's files; returns the version of glibc that it needs."""
  flags = (*build.FLAGS, f'-march={level}')
  with tempfile.TemporaryDirectory() as name:
    result = pathlib.Path(name, f'{level}.so')
    build.compile_and_link(
      library.FOLDER, library.SOURCES, command, flags, result, LINK_FLAGS
    )
    shutil.copy(result, to)
    about = {
      'sha256': cache.sha256(result),
      'interface': prebuilt.interface(),
      'sources': build.digest_of(library.FOLDER),
    }
    (to / f'{level}.json').write_text(json.dumps(about), encoding='utf-8')
    versions = re.findall(rb'GLIBC_(\d+)\.(\d+)', result.read_bytes())
  return max((int(major), int(minor)) for major, minor in versions)


def _output(*command):
  return subprocess.run(
    command, check=True, capture_output=True, text=True
  ).stdout.strip()


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description='Makes a wheel.')
  parser.add_argument('folder', type=pathlib.Path)
  make(parser.parse_args().folder)
