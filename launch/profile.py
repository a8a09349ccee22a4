"""Profiles a training step: memory, time and operations.

    python -m launch.profile --config=published \\
        --workdir=runs/profile

Reports the memory of parameters, gradients, optimizer state and activations,
from the compiled program and from the device; the slowest operations and the
largest results by module; and how busy the device was. It runs on random tokens
of the config's shape and reads no dataset. WORKDIR gets profile.md,
profile.json, profile.png, and trace/ for TensorBoard and Perfetto.

--target=h100 compiles for a GPU that isn't attached: memory, collectives and
what is computed while they travel, the registers and spills of kernels, and how
long kernels would take, which is predicted. It needs the CUDA packages and no
driver.
"""

import pathlib

from absl import flags

from launch import command

PURPOSE = 'Measure'
CONFIG = command.define_config(required=True)
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for the report.', required=True
)
STEPS = flags.DEFINE_integer('steps', 5, 'Steps to trace.', lower_bound=1)
TARGET = flags.DEFINE_string(
  'target', '', 'A GPU to compile for: h100, h200, b200, a100 or l4.'
)
ROWS = flags.DEFINE_integer(
  'rows', 0, "Rows in a batch; 0: the config's.", lower_bound=0
)
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens in a row; 0: data.length.', lower_bound=0
)


def main(argv):
  from rnn_jax import errors
  from rnn_jax.profiling import profile
  from rnn_jax.profiling import report
  from rnn_jax.profiling import workload as workload_lib
  from rnn_jax.system import target

  del argv
  if TARGET.value and flags.FLAGS['steps'].present:
    raise errors.InputError(
      f'--steps={STEPS.value}: no steps run with --target={TARGET.value}: drop '
      'one of the two'
    )
  workdir = pathlib.Path(WORKDIR.value)
  with target.using(TARGET.value):
    workload = workload_lib.make(workload_lib.parse(CONFIG.value, LENGTH.value))
    rows = workload.rows(ROWS.value)
    try:
      workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise errors.InputError(
        f'--workdir={WORKDIR.value}: {error.strerror}: give a folder'
      ) from error
    if TARGET.value:
      result = profile.compile_only(workload, rows)
    else:
      result = profile.run(workload, rows, STEPS.value, workdir)
  print(report.write(result, workdir), end='')


if __name__ == '__main__':
  command.run(main)
