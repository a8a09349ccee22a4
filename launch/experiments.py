"""Runs a grid of variants and seeds and compares the results.

    python -m launch.experiments \\
        --grid=configs/experiments/rotten_tomatoes.py \\
        --workdir=runs/rotten_tomatoes --set=data.path=PATH/train.jsonl \\
        --set=data.validation_path=PATH/validation.jsonl

Each run is a launch.train and a launch.evaluate in its own folder. The same
command resumes where it stopped and retries failed runs. --list shows the runs;
--report compares the results so far and runs nothing.
"""

import os
import sys

from absl import flags

from launch import command

GRID = flags.DEFINE_string('grid', None, 'A file in configs/experiments/.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for all runs.')
ONLY = flags.DEFINE_string(
  'only', '', 'Run only the runs whose VARIANT/seedK matches this regex.'
)
SKIP = flags.DEFINE_string('skip', '', 'Skip the runs that match this regex.')
SEEDS = flags.DEFINE_list(
  'seeds', [], "Seeds to use instead of the grid's: 0,1,2."
)
SET = flags.DEFINE_multi_string(
  'set', [], 'section.key=value for every run, e.g. data.path=FILE'
)
LIST = flags.DEFINE_bool('list', False, 'Print the runs and exit.')
REPORT = flags.DEFINE_bool(
  'report', False, 'Compare the results so far and exit.'
)


def main(argv):
  from rnn_jax import errors
  from rnn_jax.experiments import runner

  del argv
  for flag in (GRID, WORKDIR):
    if not flag.value:
      raise errors.InputError(f'--{flag.name} is missing: see --help')
  if not all(seed.isdecimal() for seed in SEEDS.value):
    raise errors.InputError(f'--seeds={",".join(SEEDS.value)}: give 0,1,2')
  if command.COMPILATION_CACHE.value is not None:
    os.environ['JAX_COMPILATION_CACHE_DIR'] = command.COMPILATION_CACHE.value
  request = runner.Request(
    GRID.value,
    WORKDIR.value,
    ONLY.value,
    SKIP.value,
    tuple(map(int, SEEDS.value)),
    tuple(SET.value),
  )
  experiment = runner.Experiment(request)
  if LIST.value:
    print(experiment.listing())
  elif REPORT.value:
    print(experiment.report())
  else:
    sys.exit(experiment.go())


if __name__ == '__main__':
  command.run(main)
