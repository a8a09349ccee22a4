"""Prebuilt libraries of a wheel, for machines without a compiler.

Next to each library is a JSON file with its digest, the version of XLA's
interface that it was compiled for, and the digest of its sources.
"""

import json
import pathlib
import platform
import re

import jax

from rnn_jax.native import cache
from rnn_jax.system import processor

FOLDER = pathlib.Path(__file__).parent / 'prebuilt'
# Processor levels as compilers name them, the best first, with the features
# that Linux lists for them.
_V2 = {'cx16', 'lahf_lm', 'popcnt', 'sse4_1', 'sse4_2', 'ssse3'}
_V3 = _V2 | {'avx', 'avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'abm', 'movbe'}
_V4 = _V3 | {'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'}
_V8 = {'fp', 'asimd'}
LEVELS: dict[str, dict[str, set[str]]] = {
  'x86_64': {'x86-64-v4': _V4, 'x86-64-v3': _V3, 'x86-64-v2': _V2},
  'aarch64': {'armv8-a+dotprod': _V8 | {'asimddp'}, 'armv8-a': _V8},
  'arm64': {'apple-m1': set()},  # macOS's name: all of its processors
}


def find(source: str) -> tuple[pathlib.Path, str]:
  """Returns the best library for this processor, and its level.

  Args:
    source: the digest of the sources (build.digest_of).

  Raises:
    cache.UnavailableError: no library fits.
  """
  here = interface()
  why = 'the package has no prebuilt library for this machine'
  for level, needs in LEVELS.get(platform.machine(), {}).items():
    path = FOLDER / f'{level}.so'
    if not path.exists() or not needs <= processor.features():
      continue
    about = json.loads(path.with_suffix('.json').read_text(encoding='utf-8'))
    major, minor = about['interface']
    # XLA runs libraries of an older minor version, and refuses newer ones.
    if major != here[0] or minor > here[1]:
      why = (
        f'the prebuilt library is for version {major}.{minor} of XLA FFI, '
        f'jaxlib {jax.lib.__version__} has {here[0]}.{here[1]}'
      )
    elif about['sources'] != source:
      why = f'{path} is of other sources: install the package again'
    elif about['sha256'] != cache.sha256(path):
      why = f'{path} is damaged: install the package again'
    else:
      return path, level
  raise cache.UnavailableError(why)


def interface() -> tuple[int, int]:
  """Returns the version of XLA's foreign function interface in jaxlib."""
  header = pathlib.Path(jax.ffi.include_dir(), 'xla/ffi/api/c_api.h')
  text = header.read_text(encoding='utf-8')
  version = dict(re.findall(r'#define XLA_FFI_API_(MAJOR|MINOR) (\d+)', text))
  return int(version['MAJOR']), int(version['MINOR'])
