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
CONFIG = command.define_config(required=True)
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
  from rnn_jax.profiling import batch_size
  from rnn_jax.profiling import workload
  from rnn_jax.system import streams
  from rnn_jax.system import target

  del argv
  if TARGET.value and CONFIRM.value:
    raise errors.InputError(
      f'--target={TARGET.value}: --confirm runs steps, and the target is not '
      'attached: drop one of the two'
    )
  streams.stdout_is_the_result()
  with target.using(TARGET.value):
    config = workload.parse(CONFIG.value, LENGTH.value)
    result = batch_size.report(config, MEMORY_GIB.value, CONFIRM.value)
  if JSON.value:
    print(
      json.dumps({'rows': result.rows, 'budget_bytes': result.budget.bytes})
    )


if __name__ == '__main__':
  command.run(main)
