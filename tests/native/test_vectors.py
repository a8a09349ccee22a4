"""The forms of the C++ library for each processor equal loops in float64.

vectors.cc is compiled for this processor, and for Arm's with and without the
instructions that not all of them have; QEMU runs those. `make test-neon` says
what it skips.
"""

import importlib.util
import platform
import shutil
import subprocess
import sys

import jax
import pytest

from rnn_jax.native import build
from rnn_jax.native import cache
from rnn_jax.native import library

DRIVER = 'tests/native/vectors.cc'
FLAGS = '-std=c++17', '-O1', '-ffp-contract=fast'
CROSS = 'aarch64-linux-gnu-g++'
EMULATORS = 'qemu-aarch64-static', 'qemu-aarch64'
WHY_NO_COMPILER = (
  f'compiles for aarch64: needs ziglang (the extra release) or {CROSS}'
)
WHY_NO_EMULATOR = 'runs programs for aarch64: needs QEMU (qemu-user-static)'


def compiled(folder, command):
  program = folder / 'vectors'
  include = f'-I{library.FOLDER}', '-isystem', jax.ffi.include_dir()
  source = library.FOLDER.parents[1] / DRIVER
  subprocess.run(
    (*command, *FLAGS, *include, str(source), '-o', str(program)), check=True
  )
  return program


def check(*command):
  ended = subprocess.run(command, capture_output=True, text=True, check=False)
  assert ended.returncode == 0, ended.stdout + ended.stderr
  return ended.stdout


def test_forms_of_this_processor(tmp_path):
  try:
    chosen = build.compiler()
  except cache.UnavailableError as error:
    pytest.skip(str(error))
  target = build.NATIVE.get(platform.machine().lower())
  given = (target,) if target else ()
  assert ' 0 wrong' in check(compiled(tmp_path, (*chosen.command, *given)))


@pytest.mark.parametrize(
  ('features', 'rows'), (('', 2), ('+dotprod', 4), ('+dotprod+bf16', 4))
)
def test_forms_of_arm(tmp_path, features, rows):
  emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
  if emulator is None:
    pytest.skip(WHY_NO_EMULATOR)
  if cross := shutil.which(CROSS):
    command = (cross, '-static', f'-march=armv8.2-a{features}')
  elif importlib.util.find_spec('ziglang'):
    zig = sys.executable, '-m', 'ziglang', 'c++', '-static'
    target = '-target', 'aarch64-linux-musl', f'-mcpu=generic{features}'
    command = (*zig, *target)
  else:
    pytest.skip(WHY_NO_COMPILER)
  said = check(emulator, str(compiled(tmp_path, command)))
  assert said == f'vectors of 4 numbers, {rows} rows at once: 0 wrong\n'
