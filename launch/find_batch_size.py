"""Finds the largest batch whose training step fits a budget of memory.

    python -m launch.find_batch_size --config=configs/published.py \\
        --memory_gib=4

It compiles steps and reads XLA's account of their memory; nothing runs, so the
budget may be another machine's. Without --memory_gib it is what this device has
left. --confirm then runs a few real steps on random tokens, under the budget as
a limit and in a process of their own, so that running out of memory ends
nothing else.
"""

import json
import os

from absl import flags
from ml_collections import config_flags

from launch import command

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A file of configs/; each key of it is a flag too.'
)
MEMORY_GIB = flags.DEFINE_float(
  'memory_gib', None, 'GiB of each device; default: what this one has.'
)
CONFIRM = flags.DEFINE_bool('confirm', False, 'Run real steps as well.')
JSON = flags.DEFINE_bool('json', False, 'End with the result as JSON.')
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens of a row; 0: data.length.', lower_bound=0
)


def main(argv):
  # The real steps need the GPU's memory, which this process would else take.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  from rnn_jax import errors
  from rnn_jax.profiling import batch_size
  from rnn_jax.profiling import subject as subject_lib
  from rnn_jax.profiling import trial
  from rnn_jax.training import memory

  del argv
  if CONFIG.value is None:
    raise errors.InputError('--config is missing: name a file of configs/')
  given = MEMORY_GIB.value
  if given is not None and given <= 0:
    raise errors.InputError(f'--memory_gib={given!r}: give more than 0')
  if given is not None and CONFIRM.value:
    trial.check(memory.gib(given, '--memory_gib'))
  subject = subject_lib.make(subject_lib.parse(CONFIG.value, LENGTH.value))
  if given is None:
    budget = trial.device_budget()
  else:
    budget = memory.gib(given, '--memory_gib')
  print(subject.describe())
  print(f'budget: {budget.bytes / 2**30:.4g} GiB of each device', flush=True)
  found = batch_size.find(subject, budget, CONFIRM.value)
  print(f'{batch_size.table(found)}\n(GiB, by the compiled program)')
  if not found.rows:
    raise errors.InputError(f'{budget.name}: no batch ran: give more')
  print(f'largest: {batch_size.conclusion(found, subject)}')
  if JSON.value:
    print(json.dumps({'rows': found.rows, 'budget_bytes': budget.bytes}))


if __name__ == '__main__':
  command.run(main)
