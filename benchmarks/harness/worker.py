"""Runs one case and writes what it measured; workers.py starts this.

  python -m benchmarks.harness.worker --case=case.json --result=result.json

Whatever goes wrong here is a result with an `error`.
"""

import contextlib
import importlib
import json
import os
import pathlib
import resource

from absl import flags

from benchmarks.harness import case as case_lib
from benchmarks.harness import turns
from launch import command

CASE = flags.DEFINE_string('case', None, 'File of the case.', required=True)
RESULT = flags.DEFINE_string('result', None, 'File to write.', required=True)
TURNS = flags.DEFINE_integer('turns', -1, 'Descriptor of a socket of turns.py.')
ALONE = flags.DEFINE_integer('alone', -1, 'The same, of a process that waits.')
PEERS = {
  'torch': 'pip install -e .[peers]',
  'fastapi': 'pip install -e .[peers,serve]',
  'fla': 'pip install -e .[peers]',
  'triton': 'pip install -e .[peers]',
  'jla': 'docs/dependencies.md says in which environment it runs',
}
SHARE = 0.85  # of the machine's memory, before an allocation fails


def main(argv: list[str]) -> None:
  del argv
  case = json.loads(pathlib.Path(CASE.value).read_text())
  _limit(case['core_limit'])
  if TURNS.value >= 0:
    turns.join(TURNS.value)
  if ALONE.value >= 0:
    turns.wait_at(ALONE.value)
  result = _run(case)
  part = pathlib.Path(RESULT.value + '.part')
  part.write_text(json.dumps(result))
  part.replace(RESULT.value)


def _limit(cores):
  """Confines this process, so that its neighbours survive what it tries."""
  with contextlib.suppress(OSError):
    pathlib.Path('/proc/self/oom_score_adj').write_text('1000')
  # CUDA maps more memory than the machine has.
  if not pathlib.Path('/dev/nvidiactl').exists():
    machine = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(SHARE * machine), most))
  if cores:
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:cores])


def _run(case):
  import jax

  from benchmarks.harness import rehearsal
  from rnn_jax.system import host

  # Made for training runs; here each case compiles, and data comes from NumPy.
  jax.config.update('jax_transfer_guard', 'allow')
  jax.config.update('jax_enable_compilation_cache', False)
  workload = case['workload']
  repeats = {'repeats': case['repeats']} if case['repeats'] else {}
  try:
    with rehearsal.mode(case['rehearsal']):
      module = importlib.import_module(case_lib.module_of(workload))
      run = getattr(module, workload.rpartition('.')[2])
      values = run(**repeats, **case['parameters'])
  except rehearsal.Compiled as compiled:
    return compiled.values
  except Exception as error:
    return _failure(error)
  return values | {'process_peak_bytes': host.process_peak()}


def _failure(error):
  if getattr(error, 'name', None) in PEERS:
    message = f'{error.name} is not installed: {PEERS[error.name]}'
    return {'failure': 'missing', 'error': message}
  lines = str(error).strip().splitlines() or ['']
  message = f'{type(error).__name__}: {lines[0][:300]}'
  return {'failure': 'exception', 'error': message}


if __name__ == '__main__':
  command.run(main)
