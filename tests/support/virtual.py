"""Eight devices for tests: virtual ones of a CPU, in a process of their own.

A session starts one such process, which computes what its files ask for.
"""

import atexit
import functools
import importlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import traceback
from multiprocessing import connection

import jax
import jaxlib

ROOT = pathlib.Path(__file__).parents[2]
DEVICES = 8
# A device may wait in several collectives at once, each in a thread of XLA's:
# with too few threads, the devices wait for one another forever.
THREADS = 4 * DEVICES
SECONDS = 1200  # of one call, on a machine that does other things
# Tests' programs take longer to compile than to run.
QUICK = (
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
  # Small programs: to split them for threads takes a third of their time.
  '--xla_cpu_parallel_codegen_split_count=1',
)
ISA = '--xla_cpu_max_isa='
if jaxlib.version.__version_info__ < (0, 11):
  # MLIR takes most of the time there; later versions know no other way.
  QUICK += ('--xla_cpu_use_fusion_emitters=false',)


def processor() -> tuple[str, ...]:
  """Returns the caller's XLA flag that limits the instruction set, if any."""
  flags = os.environ.get('XLA_FLAGS', '').split()
  return tuple(flag for flag in flags if flag.startswith(ISA))


def call(module: str, function: str):
  """Returns what a function of a module returns on eight devices.

  It has no arguments, and returns what can be pickled.
  """
  pipe = _start()
  pipe.send((module, function))
  if not pipe.poll(SECONDS):
    raise TimeoutError(f'{module}.{function}: no result in {SECONDS} s')
  try:
    result, error = pipe.recv()
  except EOFError as gone:
    _start.cache_clear()
    raise RuntimeError(f'{module}.{function} ended its process') from gone
  if error:
    raise RuntimeError(f'{module}.{function} on {DEVICES} devices:\n{error}')
  return result


@functools.cache
def _start():
  """Starts the process. Returns the connection to it."""
  count = f'--xla_force_host_platform_device_count={DEVICES}'
  environment = os.environ | {
    'XLA_FLAGS': ' '.join((count, *QUICK, *processor())),
    'JAX_PLATFORMS': 'cpu',
    'NPROC': f'{THREADS}',
  }
  ours, theirs = multiprocessing.Pipe()
  with theirs:
    process = subprocess.Popen(
      [sys.executable, '-m', 'tests.support.virtual', str(theirs.fileno())],
      cwd=ROOT,
      env=environment,
      pass_fds=[theirs.fileno()],
    )
  atexit.register(process.wait)
  atexit.register(ours.close)  # runs first, and ends the process
  return ours


def main(descriptor):
  """What the other process does, until this one closes the connection."""
  jax.config.update('jax_numpy_rank_promotion', 'raise')
  assert jax.device_count() == DEVICES
  with connection.Connection(int(descriptor)) as pipe:
    while True:
      try:
        module, function = pipe.recv()
      except EOFError:
        return
      try:
        found = getattr(importlib.import_module(module), function)()
        answer = found, ''
      except Exception:
        answer = None, traceback.format_exc()
      pipe.send(answer)
      jax.clear_caches()


if __name__ == '__main__':
  main(*sys.argv[1:])
