"""Real training steps in a child process, which may run out of memory.

  python -m rnn_jax.profiling.trial REQUEST RESULT

`run` starts this. REQUEST is JSON: the config, rows, steps, and the limit in
bytes of each device. RESULT gets the peak; without memory there is no RESULT
and the process fails. Compilation ends before the limit applies.

On a CPU the limit is on the process's private memory, above what it holds
before the first step. On a GPU it is the size of the pool that the process
allocates from, which the environment sets.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
import time
from typing import NamedTuple

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.profiling import workload as workload_lib
from rnn_jax.system import files
from rnn_jax.system import gpu_memory
from rnn_jax.system import host
from rnn_jax.system import subprocesses
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size

STEPS = 2
PAUSE = 0.2  # seconds between steps
TIMEOUT = 1800  # seconds
LONGEST = 300  # characters of an error


class Trial(NamedTuple):
  """How real steps of `rows` rows went.

  Attributes:
    peak_bytes: the peak of each device; None if the steps failed.
    error: why they failed, or ''.
  """

  rows: int
  fits: bool
  peak_bytes: int | None
  error: str


def device_budget() -> batch_size.Budget:
  """Returns what this machine, or the target, has for each device.

  Raises:
    InputError: it doesn't say.
  """
  if gpu := target.used():
    share = gpu_memory.fraction()
    return batch_size.Budget(
      int(share * gpu.memory), f'{share:.0%} of an {gpu.title}'
    )
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'bytes_limit' in stats:
    return batch_size.Budget(stats['bytes_limit'], "the device's memory")
  share = host.available_bytes() // jax.local_device_count()
  return batch_size.Budget(share, 'the available memory')


def check(budget: batch_size.Budget) -> None:
  """Raises InputError if this machine has less than the budget."""
  here = device_budget()
  if budget.bytes > here.bytes:
    raise errors.InputError(
      f'{budget.name}: --confirm runs on this machine, and {here.name} is '
      f'{here.bytes / 2**30:.3g} GiB: give less, or drop --confirm'
    )


def run(
  config: config_lib.Config, rows: int, budget: batch_size.Budget
) -> Trial:
  """Runs a few steps of `rows` rows on random tokens within a budget.

  Raises:
    RuntimeError: they failed for another reason than memory.
  """
  with tempfile.TemporaryDirectory() as folder:
    request, result = (pathlib.Path(folder, n) for n in ('request', 'result'))
    values = {
      'config': config_lib.to_dict(config),
      'rows': rows,
      'steps': STEPS,
      'limit': budget.bytes,
    }
    request.write_text(json.dumps(values))
    ended = subprocesses.run(
      [sys.executable, '-m', __spec__.name, str(request), str(result)],
      variables=_environment(budget),
      timeout=TIMEOUT,
    )
    return _read(rows, ended, result)


def ran_out(line: str) -> bool:
  """Returns whether a line of a process's output says that memory ran out."""
  return bool(errors.OUT_OF_MEMORY.search(line))


def _read(rows, ended, result):
  if ended.code == 0:
    peak = json.loads(result.read_text())['peak_bytes']
    return Trial(rows, True, peak, '')
  output = [*ended.out, *ended.err]
  if exhausted := [line for line in output if ran_out(line)]:
    return Trial(rows, False, None, exhausted[-1].strip()[:LONGEST])
  if ended.signal_name:  # what can't be allocated may end a process at once
    return Trial(rows, False, None, f'killed by {ended.signal_name}')
  text = '\n'.join(output)[-4000:]
  raise RuntimeError(f'steps of {rows} rows failed, {ended.error}:\n{text}')


def _environment(budget):
  """This process's variables, with a GPU's pool as large as the budget."""
  variables = subprocesses.environment()
  if cache := jax.config.jax_compilation_cache_dir:
    variables['JAX_COMPILATION_CACHE_DIR'] = cache
  if jax.default_backend() == 'cpu':
    # As launchers do: each further arena reserves 64 MiB of address space.
    return variables | {'MALLOC_ARENA_MAX': '1'}
  share = gpu_memory.fraction() * budget.bytes / device_budget().bytes
  for name in gpu_memory.FRACTIONS:
    variables.pop(name, None)
  variables |= gpu_memory.variables(round(share, 6), variables)
  variables['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'true'
  return variables


def main(request_path: str, result_path: str) -> None:
  """Runs the steps of a request; see the module's docstring."""
  # The kernel's first choice, should the machine run out of memory.
  with contextlib.suppress(OSError):
    pathlib.Path('/proc/self/oom_score_adj').write_text('1000')
  request = json.loads(pathlib.Path(request_path).read_text())
  config, rows = config_lib.parse(request['config']), request['rows']
  workload = workload_lib.make(config)
  program = workload.programs.compile_train(rows, config.data.length)
  runner = workload_lib.Runner(workload, rows, program)
  if jax.default_backend() == 'cpu':
    budget = request['limit'] * jax.local_device_count()
    host.limit(budget - runner.held)
  for _ in range(request['steps']):
    runner.run(1)
    # A CPU client frees the temporaries of a step only after its results are
    # there; a limit would count them twice.
    time.sleep(PAUSE)
  files.write_whole(result_path, json.dumps({'peak_bytes': runner.peak()[1]}))


if __name__ == '__main__':
  main(*sys.argv[1:])
