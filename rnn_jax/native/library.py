"""Loads and calls the C++ library, which is optional.

It is compiled once for this machine (build.py), or comes with the wheel
(prebuilt.py). Where neither works, `lacking` returns why.
"""

import ctypes
import dataclasses
import functools
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import jax

from rnn_jax.native import build
from rnn_jax.native import cache
from rnn_jax.native import prebuilt
from rnn_jax.system import processor

SOURCES = (
  'gla.cc',
  'gla_handlers.cc',
  'gla_projected.cc',
  'delta.cc',
  'delta_handlers.cc',
  'linear_scan.cc',
  'gated.cc',
  'gated_layers.cc',
  'slstm.cc',
  'products.cc',
  'rows.cc',
  'row_programs.cc',
)
TARGETS = (  # names of the handlers
  'gla_forward',
  'gla_backward',
  'gla_projected_forward',
  'gla_projected_backward',
  'delta_forward',
  'delta_backward',
  'delta_general_forward',
  'delta_general_backward',
  'linear_scan_forward',
  'linear_scan_backward',
  'lstm_forward',
  'lstm_backward',
  'min_lstm_forward',
  'min_lstm_backward',
  'gru_forward',
  'gru_backward',
  'rhn_forward',
  'rhn_backward',
  'gru_before_forward',
  'gru_before_backward',
  'slstm_forward',
  'slstm_backward',
  'product_floats',
  'product_int8',
  'product_blocks',
  'row_sums',
  'row_logsumexp',
  'row_argmax',
  'row_products',
  'row_function',
  'row_one',
  'row_program',
)
FOLDER = pathlib.Path(__file__).parent
_LOCK = threading.Lock()


def lacking() -> str:
  """Returns why the library isn't available; '' if it is."""
  return _loaded().why


def call(
  target: str,
  results: Sequence[jax.ShapeDtypeStruct],
  *operands: jax.Array,
  aliases: dict[int, int] | None = None,
  **attributes: Any,
) -> tuple[jax.Array, ...]:
  """Calls a handler by `jax.ffi.ffi_call`.

  Args:
    target: one of TARGETS.
    results: shapes and dtypes of the results.
    *operands: arrays.
    aliases: {operand: result}, results that overwrite an operand.
    **attributes: static arguments of the handler.

  Returns:
    The results.

  Raises:
    NotImplementedError: the library isn't available.
  """
  if why := lacking():
    raise NotImplementedError(why)
  run = jax.ffi.ffi_call(
    f'rnn_jax_{target}', results, input_output_aliases=aliases
  )
  return tuple(run(*operands, **attributes))


def describe() -> str:
  """Returns one line: the library, or why it isn't available."""
  if why := lacking():
    return f"native: not available: {why}; impl='auto' runs 'chunked'"
  loaded = _loaded()
  return f'native: {loaded.path}, {loaded.origin}, {loaded.vectors}'


@dataclasses.dataclass(frozen=True)
class _Loaded:
  """The loaded library, or `why` it isn't available."""

  why: str = ''
  path: pathlib.Path | None = None
  origin: str = ''  # the compiler's version, or 'prebuilt'
  vectors: str = ''


def _loaded():
  with _LOCK:  # handlers are registered once
    return _load()


@functools.cache
def _load():
  if os.environ.get('RNN_JAX_NATIVE') == '0':
    return _Loaded('RNN_JAX_NATIVE=0 switches it off')
  try:
    loaded = _choose()
    _register(ctypes.CDLL(str(loaded.path)))
  except cache.UnavailableError as error:
    return _Loaded(str(error))
  except (
    OSError,  # also of CDLL
    AttributeError,  # a handler is missing
    ValueError,
    jax.errors.JaxRuntimeError,  # XLA refuses a handler
  ) as error:
    lines = str(error).splitlines() or ['']
    return _Loaded(f"it doesn't load: {type(error).__name__}: {lines[0]}")
  return loaded


def _choose():
  try:
    path, compiler = build.find_or_build(FOLDER, SOURCES)
    return _Loaded('', path, compiler.version, processor.vectors())
  except cache.UnavailableError as error:
    try:
      path, level = prebuilt.find(build.digest_of(FOLDER))
    except cache.UnavailableError as other:
      has_files = prebuilt.FOLDER.is_dir()
      why = f'{error}; {other}' if has_files else str(error)
      raise cache.UnavailableError(why) from None
    return _Loaded('', path, 'prebuilt', level)


def _register(library):
  for target in TARGETS:
    handler = jax.ffi.pycapsule(getattr(library, target))
    jax.ffi.register_ffi_target(f'rnn_jax_{target}', handler, platform='cpu')
