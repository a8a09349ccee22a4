"""Runs a grid of variants and seeds, and compares them.

    python -m launch.experiments \\
        --grid=configs/experiments/rotten_tomatoes.py \\
        --workdir=runs/rotten_tomatoes --set=data.path=PATH/train.jsonl \\
        --set=data.validation_path=PATH/validation.jsonl

Each run is a launch.train and a launch.evaluate in a folder of its own. The
same command goes on where it was stopped and tries failed runs again. --list
shows the runs; --report compares what there is so far, and runs nothing.
"""

import os
import sys

from absl import flags

from launch import command

GRID = flags.DEFINE_string('grid', None, 'A file of configs/experiments/.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of all its runs.')
ONLY = flags.DEFINE_string(
  'only', '', 'Run those whose variant/seedK this regular expression finds.'
)
SKIP = flags.DEFINE_string('skip', '', 'Leave out those that this one finds.')
SEEDS = flags.DEFINE_list('seeds', [], "Seeds instead of the grid's: 0,1,2.")
SET = flags.DEFINE_multi_string(
  'set', [], 'section.key=value for every run, such as data.path; repeat it.'
)
LIST = flags.DEFINE_bool('list', False, 'Print the runs and exit.')
REPORT = flags.DEFINE_bool('report', False, 'Compare what is there and exit.')


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
