"""Eight devices for tests: virtual ones of a CPU, in a process of their own."""

import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import jax
import jaxlib

from tests import tiny

DEVICES = 8
# Tests' programs take longer to compile than to run.
QUICK = (
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
)
ISA = '--xla_cpu_max_isa='
if jaxlib.version.__version_info__ < (0, 11):
  # MLIR takes most of the time there; later versions know no other way.
  QUICK += ('--xla_cpu_use_fusion_emitters=false',)


def processor() -> tuple[str, ...]:
  """Returns the caller's XLA flag that limits the instruction set, if any."""
  flags = os.environ.get('XLA_FLAGS', '').split()
  return tuple(flag for flag in flags if flag.startswith(ISA))


def call(module: str, function: str, flags: tuple[str, ...] = QUICK):
  """Returns what a function of a module returns on eight devices.

  It has no arguments, and returns what can be pickled; `flags` are XLA's.
  """
  count = f'--xla_force_host_platform_device_count={DEVICES}'
  environment = os.environ | {
    'XLA_FLAGS': ' '.join((count, *flags, *processor())),
    'JAX_PLATFORMS': 'cpu',
  }
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, 'found.pickle')
    subprocess.run(
      [sys.executable, '-m', 'tests.virtual', module, function, str(path)],
      cwd=tiny.ROOT,
      env=environment,
      check=True,
      timeout=1200,
    )
    return pickle.loads(path.read_bytes())


def main(module, function, path):
  """What the other process does."""
  jax.config.update('jax_numpy_rank_promotion', 'raise')
  assert jax.device_count() == DEVICES
  found = getattr(importlib.import_module(module), function)()
  pathlib.Path(path).write_bytes(pickle.dumps(found))


if __name__ == '__main__':
  main(*sys.argv[1:])
