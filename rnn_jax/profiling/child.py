"""Real training steps under a limit of memory; trial.py starts this.

  python -m rnn_jax.profiling.child REQUEST RESULT

REQUEST is JSON: the config, rows, steps, and the limit in bytes of each device.
RESULT says whether they fit, and the peak. Compilation is done before the limit
holds. On a GPU the limit is the size of its pool, which the environment sets.
"""

import contextlib
import json
import pathlib
import sys

import jax

from rnn_jax import config as config_lib
from rnn_jax import files
from rnn_jax.profiling import host
from rnn_jax.profiling import subject as subject_lib

EXHAUSTED = 'RESOURCE_EXHAUSTED', 'out of memory', 'Out of memory'


def main(request_path: str, result_path: str) -> None:
  # The kernel's first choice, should the machine run out of memory.
  with contextlib.suppress(OSError):
    pathlib.Path('/proc/self/oom_score_adj').write_text('1000')
  request = json.loads(pathlib.Path(request_path).read_text())
  config = config_lib.parse(request['config'])
  try:
    found = {'fits': True, 'peak_bytes': _run(config, request)}
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    told = str(error) or 'out of memory'
    if not isinstance(error, MemoryError) and not _exhausted(told):
      raise
    found = {'fits': False, 'error': told.splitlines()[0][:300]}
  files.write_whole(result_path, json.dumps(found))


def _run(config, request):
  """Runs the steps. Returns the peak of bytes, of all devices of a CPU."""
  subject, rows = subject_lib.make(config), request['rows']
  program = subject.steps.compile_train(rows, config.data.length)
  state = jax.block_until_ready(subject.steps.init(config.train.seed, rows))
  batch = subject.batch(rows)
  on_cpu = jax.default_backend() == 'cpu'
  if on_cpu:
    given = sum(map(_bytes, jax.tree.leaves((state, batch))))
    host.give_back_free_memory()
    memory = host.Memory()
    host.limit(request['limit'] * jax.device_count() - given)
  for _ in range(request['steps']):
    state, metrics = program(state, batch)
    jax.block_until_ready((state, metrics))
  if on_cpu:
    return given + memory.values()['resident_delta_bytes']
  return jax.local_devices()[0].memory_stats()['peak_bytes_in_use']


def _bytes(array):
  return sum(shard.data.nbytes for shard in array.addressable_shards)


def _exhausted(message):
  return any(text in message for text in EXHAUSTED)


if __name__ == '__main__':
  main(*sys.argv[1:])
