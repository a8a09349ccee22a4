"""Finds the largest batch whose training step fits in memory.

    python -m launch.find_batch_size --config=published \\
        --memory_gib=4

Compiles training steps and reads XLA's memory analysis. Nothing runs, so the
budget may be another machine's. Without --memory_gib, the budget is the free
memory of this device. --confirm then runs a few real steps on random tokens, in
a separate process limited to the budget, so that running out of memory harms
nothing else.

--target=h100 compiles for a GPU that isn't attached, with the real compiler. It
needs the CUDA packages and no driver. The budget is then what jax takes of that
GPU's memory.
"""

import json
import os

from absl import flags

from launch import command

PURPOSE = 'Measure'
CONFIG = command.define_config(
  'A name, as stdlib_bytes, or a file; each of its keys is a flag too.'
)
MEMORY_GIB = flags.DEFINE_float(
  'memory_gib', None, 'GiB on each device. Default: what this device has.'
)
CONFIRM = flags.DEFINE_bool('confirm', False, 'Run real steps as well.')
JSON = flags.DEFINE_bool(
  'json', False, 'Print the result as JSON on the last line.'
)
TARGET = flags.DEFINE_string(
  'target', '', 'A GPU to compile for: h100, h200, b200, a100 or l4.'
)
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens in a row; 0: data.length.', lower_bound=0
)


def main(argv):
  # Leave the GPU's memory to the process that runs the real steps.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  from rnn_jax import errors
  from rnn_jax.system import target

  del argv
  if CONFIG.value is None:
    raise errors.InputError('--config is missing: name a file of configs/')
  if TARGET.value and CONFIRM.value:
    raise errors.InputError(
      f'--target={TARGET.value}: --confirm runs steps, and the target is not '
      'attached: drop one of the two'
    )
  with target.using(TARGET.value):
    _find()


def _find():
  from rnn_jax import errors
  from rnn_jax.profiling import batch_size
  from rnn_jax.profiling import trial
  from rnn_jax.profiling import workload as workload_lib
  from rnn_jax.system import streams
  from rnn_jax.training.memory import batch_size as batch_size_lib

  streams.stdout_is_the_result()
  given = MEMORY_GIB.value
  if given is not None and not 0 < given < 2**40:
    raise errors.InputError(f'--memory_gib={given!r}: give more than 0')
  if given is not None and CONFIRM.value:
    trial.check(batch_size_lib.gib(given, '--memory_gib'))
  workload = workload_lib.make(workload_lib.parse(CONFIG.value, LENGTH.value))
  if given is None:
    budget = trial.device_budget()
  else:
    budget = batch_size_lib.gib(given, '--memory_gib')
  print(workload.describe())
  print(f'budget: {budget.bytes / 2**30:.4g} GiB on each device', flush=True)
  result = batch_size.find(workload, budget, CONFIRM.value)
  print(f'{batch_size.table(result)}\n(GiB, from the compiled program)')
  if not result.rows:
    raise errors.InputError(f'{budget.name}: no batch ran: give more memory')
  print(f'largest: {batch_size.conclusion(result, workload)}')
  if JSON.value:
    print(json.dumps({'rows': result.rows, 'budget_bytes': budget.bytes}))


if __name__ == '__main__':
  command.run(main)
