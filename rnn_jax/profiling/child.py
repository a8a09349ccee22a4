"""Real training steps under a limit of memory; trial.py starts this.

  python -m rnn_jax.profiling.child REQUEST RESULT

REQUEST is JSON: the config, rows, steps, the limit in bytes of each device.
RESULT has the peak; where memory ran out there is none and the process fails.
Compilation is done before the limit holds. On a GPU the limit is the size of
its pool, which the environment sets.
"""

import contextlib
import json
import pathlib
import sys
import time

import jax

from rnn_jax import config as config_lib
from rnn_jax import files
from rnn_jax import host
from rnn_jax.profiling import runner as runner_lib
from rnn_jax.profiling import subject as subject_lib

PAUSE = 0.2  # seconds


def main(request_path: str, result_path: str) -> None:
  # The kernel's first choice, should the machine run out of memory.
  with contextlib.suppress(OSError):
    pathlib.Path('/proc/self/oom_score_adj').write_text('1000')
  request = json.loads(pathlib.Path(request_path).read_text())
  config = config_lib.parse(request['config'])
  peak = _run(config, request)
  files.write_whole(result_path, json.dumps({'peak_bytes': peak}))


def _run(config, request):
  """Runs the steps. Returns the peak of bytes of each device."""
  subject, rows = subject_lib.make(config), request['rows']
  program = subject.steps.compile_train(rows, config.data.length)
  runner = runner_lib.Runner(subject, rows, program)
  if jax.default_backend() == 'cpu':
    budget = request['limit'] * jax.local_device_count()
    host.limit(budget - runner.held)
  for _ in range(request['steps']):
    runner.run(1)
    # A CPU client frees the temporaries of a step only after its results are
    # there; a limit would count them twice.
    time.sleep(PAUSE)
  return runner.peak()[1]


if __name__ == '__main__':
  main(*sys.argv[1:])
