"""Builds, loads and calls the C++ library."""

import ctypes
import functools
import hashlib
import pathlib
import subprocess
import tempfile

import jax

SOURCES = ('linear_scan.cc', 'gated.cc')
TARGETS = (  # handlers, by the names that they are called by
  'linear_scan_forward',
  'linear_scan_backward',
  'lstm_forward',
  'lstm_backward',
  'min_lstm_forward',
  'min_lstm_backward',
  'gru_forward',
  'gru_backward',
)
FLAGS = ('-O3', '-march=native', '-std=c++17', '-fPIC', '-ffp-contract=fast')
FOLDER = pathlib.Path(__file__).parent


def lacking() -> str:
  """Says why there is no library here; '' if there is one."""
  return _load()


def call(target, results, *operands, aliases=None, **attributes):
  """`jax.ffi.ffi_call` of a handler in TARGETS; `aliases` says, {operand:
  result}, what is written where an operand was."""
  if why := lacking():
    raise NotImplementedError(why)
  run = jax.ffi.ffi_call(
    f'rnn_jax_{target}', results, input_output_aliases=aliases
  )
  return run(*operands, **attributes)


@functools.cache
def _load():
  text = b''.join(p.read_bytes() for p in sorted(FOLDER.glob('*.[ch]*')))
  key = hashlib.sha256(text).hexdigest()[:16]
  path = pathlib.Path(tempfile.gettempdir(), f'rnn_jax_{key}.so')
  if not path.exists():
    include = ['-isystem', jax.ffi.include_dir()]
    sources = [str(FOLDER / name) for name in SOURCES]
    subprocess.run(
      ['g++', *FLAGS, '-shared', *include, *sources, '-o', str(path)],
      check=True,
    )
  library = ctypes.CDLL(str(path))
  for target in TARGETS:
    handler = jax.ffi.pycapsule(getattr(library, target))
    jax.ffi.register_ffi_target(f'rnn_jax_{target}', handler, platform='cpu')
  return ''
