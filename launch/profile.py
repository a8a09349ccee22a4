"""Profiles a training step: memory, time, operations and buffers.

    python -m launch.profile --config=configs/published.py \\
        --workdir=runs/profile

Memory of parameters, gradients, optimizer and activations, by the compiled
program and by the device; the slowest operations and the largest results by
module; how busy the device was. Random tokens of the config's shape, so no
dataset is read. WORKDIR gets profile.md, profile.json, profile.png, and trace/
for TensorBoard and Perfetto.
"""

import pathlib

from absl import flags
from ml_collections import config_flags

from launch import command

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A file of configs/; each key of it is a flag too.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the report.')
STEPS = flags.DEFINE_integer('steps', 5, 'Steps to trace.', lower_bound=1)
ROWS = flags.DEFINE_integer(
  'rows', 0, 'Rows of a batch; 0: as the config says.', lower_bound=0
)
LENGTH = flags.DEFINE_integer(
  'length', 0, 'Tokens of a row; 0: data.length.', lower_bound=0
)


def main(argv):
  from rnn_jax import errors
  from rnn_jax.profiling import profile
  from rnn_jax.profiling import report
  from rnn_jax.profiling import subject as subject_lib

  del argv
  if CONFIG.value is None:
    raise errors.InputError('--config is missing: name a file of configs/')
  if not WORKDIR.value:
    raise errors.InputError('--workdir is missing: name a folder to write to')
  subject = subject_lib.make(subject_lib.parse(CONFIG.value, LENGTH.value))
  rows = subject.rows(ROWS.value)
  workdir = pathlib.Path(WORKDIR.value)
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise errors.InputError(
      f'--workdir={WORKDIR.value}: {error.strerror}: give a folder'
    ) from error
  found = profile.run(subject, rows, STEPS.value, workdir)
  print(report.write(found, workdir), end='')


if __name__ == '__main__':
  command.run(main)
