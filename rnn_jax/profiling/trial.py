"""Real steps of a batch in a process of their own, which may run out of memory.

On a CPU the process gets a limit on its private memory, above what it holds
before the first step. On a GPU the pool that it allocates from has that size.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

import jax

from rnn_jax import checkout
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import host
from rnn_jax.training import memory

MODULE = 'rnn_jax.profiling.child'
STEPS = 3
TIMEOUT = 1800  # seconds
LONGEST = 300  # letters of an error
# How XLA, its libraries, C++ and Python say that there is no memory left.
# YNNPACK, which jax 0.12 multiplies with on a CPU, has no status of its own for
# it: a plain error is one, a wrong parameter is not.
EXHAUSTED = re.compile(
  'RESOURCE_EXHAUSTED|out of memory|allocate of <|bad_alloc|MemoryError'
  r'|YNNPACK operation failed(?!:? *(deprecated|invalid|unsupported))',
  re.I,
)
POOL = 0.75  # of a GPU, where no variable says otherwise
FRACTIONS = 'XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION'


class Trial(NamedTuple):
  """How real steps of so many rows went.

  Attributes:
    peak_bytes: what they held at most, of each device; None if they failed.
    error: why they did, or ''.
  """

  rows: int
  fits: bool
  peak_bytes: int | None
  error: str


def device_budget() -> memory.Budget:
  """Returns what this machine has for each device.

  Raises:
    InputError: it doesn't tell.
  """
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'bytes_limit' in stats:
    return memory.Budget(stats['bytes_limit'], "the device's memory")
  share = host.available_bytes() // jax.local_device_count()
  return memory.Budget(share, 'the available memory')


def check(budget: memory.Budget) -> None:
  """Raises InputError if this machine has less than the budget."""
  here = device_budget()
  if budget.bytes > here.bytes:
    raise errors.InputError(
      f'{budget.name}: --confirm runs on this machine, and {here.name} is '
      f'{here.bytes / 2**30:.3g} GiB: give less, or no --confirm'
    )


def run(config: config_lib.Config, rows: int, budget: memory.Budget) -> Trial:
  """Runs a few steps of `rows` rows on random tokens within a budget.

  Raises:
    RuntimeError: they failed for another reason than memory.
  """
  with tempfile.TemporaryDirectory() as folder:
    request, result = (pathlib.Path(folder, n) for n in ('request', 'result'))
    asked = {
      'config': config_lib.to_dict(config),
      'rows': rows,
      'steps': STEPS,
      'limit': budget.bytes,
    }
    request.write_text(json.dumps(asked))
    ended = subprocess.run(
      [sys.executable, '-m', MODULE, str(request), str(result)],
      env=_environment(budget),
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      errors='replace',
      timeout=TIMEOUT,
      check=False,
    )
    return _read(rows, ended, result)


def ran_out(line: str) -> bool:
  """Returns whether a line of a process's output says that memory ran out."""
  return bool(EXHAUSTED.search(line))


def _read(rows, ended, result):
  if ended.returncode == 0:
    peak = json.loads(result.read_text())['peak_bytes']
    return Trial(rows, True, peak, '')
  told = [line for line in ended.stdout.splitlines() if ran_out(line)]
  if told:
    return Trial(rows, False, None, told[-1].strip()[:LONGEST])
  if ended.returncode < 0:  # what can't be allocated may end a process at once
    name = signal.Signals(-ended.returncode).name
    return Trial(rows, False, None, f'killed by {name}')
  raise RuntimeError(f'steps of {rows} rows failed:\n{ended.stdout[-4000:]}')


def _environment(budget):
  """This process's, with a GPU's pool as large as the budget."""
  changed = checkout.environment()
  if cache := jax.config.jax_compilation_cache_dir:
    changed['JAX_COMPILATION_CACHE_DIR'] = cache
  if jax.default_backend() == 'cpu':
    # As launchers have it: each arena more reserves 64 MiB of address space.
    return changed | {'MALLOC_ARENA_MAX': '1'}
  given = next(filter(None, map(os.environ.get, FRACTIONS)), POOL)
  fraction = float(given) * budget.bytes / device_budget().bytes
  for name in FRACTIONS:
    changed.pop(name, None)
  changed[FRACTIONS[0]] = f'{fraction:.6f}'
  changed['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'true'
  return changed
