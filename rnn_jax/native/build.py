"""Compiles the C++ library for this machine, once; cache.py keeps it."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence

import jax

from rnn_jax.native import cache
from rnn_jax.system import processor

# Without -fvisibility=hidden: XLA's macro for handlers doesn't export them.
FLAGS = '-O3', '-std=c++17', '-fPIC', '-ffp-contract=fast'
# Copies are of a few vectors: a call of memcpy takes longer than they do. Clang
# doesn't know the flag, and Zig refuses what Clang doesn't know.
GCC_FLAGS = ('-fno-tree-loop-distribute-patterns',)
NATIVE = {
  'x86_64': '-march=native',
  'amd64': '-march=native',
  'aarch64': '-mcpu=native',
  'arm64': '-mcpu=native',
}
COMPILERS = ('c++', 'g++', 'clang++')
TIMEOUT = 1800  # seconds per call of the compiler; sanitizers take minutes


@dataclasses.dataclass(frozen=True)
class Compiler:
  """A C++ compiler that runs."""

  command: tuple[str, ...]  # the path of the program, and $CXX's arguments
  version: str  # the first line of --version


def compiler() -> Compiler:
  """Returns $CXX, else the first of COMPILERS that is on the PATH.

  Raises:
    cache.UnavailableError: no compiler is found, or it doesn't run.
  """
  names = [os.environ['CXX']] if os.environ.get('CXX') else COMPILERS
  for name in names:
    try:
      program, *arguments = shlex.split(name)
    except ValueError:
      raise cache.UnavailableError(f'CXX={name!r} is not a command') from None
    if path := shutil.which(program):
      command = (path, *arguments)
      return Compiler(command, _version(command))
  if os.environ.get('CXX'):
    raise cache.UnavailableError(f'CXX={names[0]!r} is not on the PATH')
  raise cache.UnavailableError(
    f'no C++ compiler found ({", ".join(COMPILERS)}, $CXX)'
  )


def native_flags(chosen: Compiler) -> tuple[str, ...]:
  """Returns the compiler's flags, with $RNN_JAX_NATIVE_FLAGS at the end."""
  own = () if 'clang' in chosen.version.lower() else GCC_FLAGS
  target = NATIVE.get(platform.machine().lower())
  extra = shlex.split(os.environ.get('RNN_JAX_NATIVE_FLAGS', ''))
  return (*FLAGS, *own, *((target,) if target else ()), *extra)


def find_or_build(
  folder: pathlib.Path, sources: Sequence[str]
) -> tuple[pathlib.Path, Compiler]:
  """Returns the library of `sources`, cached or newly compiled.

  Raises:
    cache.UnavailableError: there is no compiler, it fails, or there is no
      folder for libraries.
  """
  if os.name != 'posix':
    raise cache.UnavailableError(f'it is not built on {platform.system()}')
  chosen = compiler()
  flags = native_flags(chosen)
  key = _key(folder, sources, chosen, flags)
  where = cache.folder()
  if path := cache.find(where, key):
    return path, chosen
  try:
    with cache.lock(where, key):
      path = cache.find(where, key)  # another process may have built it
      return path or _build(folder, sources, chosen, flags, where, key), chosen
  except OSError as error:
    raise cache.UnavailableError(
      f"{where} can't be written ({error.strerror}): set RNN_JAX_CACHE"
    ) from None


def compile_and_link(
  folder: pathlib.Path,
  sources: Sequence[str],
  command: Sequence[str],
  flags: Sequence[str],
  result: pathlib.Path,
  link_flags: Sequence[str] = (),
) -> None:
  """Compiles `sources` in parallel and links them as `result`.

  Raises:
    cache.UnavailableError: the compiler fails; the message has its last line.
  """
  include = ('-isystem', jax.ffi.include_dir())
  objects = [str(result.parent / f'{name}.o') for name in sources]
  steps = [
    (*command, *flags, *include, '-c', str(folder / source), '-o', target)
    for source, target in zip(sources, objects, strict=True)
  ]
  run = functools.partial(_run, workspace=result.parent)
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(run, steps))
  shared = ['-shared', *link_flags]
  if platform.system() == 'Darwin':
    shared += ['-undefined', 'dynamic_lookup']
  run((*command, *flags, *shared, *objects, '-o', str(result)))


def digest_of(folder: pathlib.Path) -> str:
  """Returns the digest of the C++ files in a folder."""
  content = hashlib.sha256()
  for path in sorted(folder.glob('*.[ch]*')):
    text = path.read_bytes()
    content.update(f'{path.name} {len(text)}\n'.encode() + text)
  return content.hexdigest()


def _key(folder, sources, chosen, flags):
  """Returns everything that the library depends on."""
  return {
    'files': digest_of(folder),
    'sources': list(sources),
    'compiler': list(chosen.command),
    'version': chosen.version,
    'flags': list(flags),
    'jaxlib': jax.lib.__version__,  # its headers
    'processor': sorted(processor.features()),
  }


def _build(folder, sources, chosen, flags, where, key):
  began = time.monotonic()
  with cache.workspace(where) as workspace:
    result = workspace / 'library.so'
    compile_and_link(folder, sources, chosen.command, flags, result)
    path = cache.keep(result, where, key)
  logging.getLogger(__name__).info(
    'compiled the C++ library with %s in %.1f s: %s',
    chosen.version,
    time.monotonic() - began,
    path,
  )
  return path


def _run(command, workspace):
  environment = {**os.environ, 'TMPDIR': str(workspace), 'LC_ALL': 'C'}
  program = pathlib.Path(command[0]).name
  try:
    result = subprocess.run(
      command,
      cwd=workspace,
      env=environment,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      timeout=TIMEOUT,
      check=False,
    )
  except subprocess.TimeoutExpired:
    raise cache.UnavailableError(
      f'{program} was stopped after {TIMEOUT} s'
    ) from None
  except OSError as error:
    raise cache.UnavailableError(
      f"{command[0]} can't be run: {error.strerror}"
    ) from None
  if result.returncode:
    lines = result.stderr.decode(errors='replace').split('\n')
    last = next((x.strip() for x in reversed(lines) if x.strip()), '')
    raise cache.UnavailableError(
      f'{program} fails with {result.returncode}: {last}'
    )
  return result.stdout.decode(errors='replace')


def _version(command):
  text = _run((*command, '--version'), pathlib.Path.cwd())
  return text.partition('\n')[0].strip()
