"""Runs a grid of variants and seeds and compares the results.

    python -m launch.experiments --grid=rotten_tomatoes \\
        --workdir=runs/rotten_tomatoes --set=data.path=PATH/train.jsonl \\
        --set=data.validation_path=PATH/validation.jsonl

Each run trains and evaluates a model in its own folder. The same command
resumes where it stopped and retries failed runs. --list shows the runs;
--report compares the results so far and runs nothing.
"""

import os
import sys

from absl import flags

from launch import command

PURPOSE = 'Train'
GRID = flags.DEFINE_string(
  'grid', None, 'A name, as memory_lab, or a Python file; -: standard input.'
)
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
  from rnn_jax import shipped
  from rnn_jax import standard_input
  from rnn_jax.experiments import runner

  del argv
  for flag in (GRID, WORKDIR):
    if not flag.value:
      raise errors.InputError(f'--{flag.name} is missing: see --help')
  if not all(seed.isdecimal() for seed in SEEDS.value):
    raise errors.InputError(f'--seeds={",".join(SEEDS.value)}: give 0,1,2')
  if command.COMPILATION_CACHE.value is not None:
    os.environ['JAX_COMPILATION_CACHE_DIR'] = command.COMPILATION_CACHE.value
  name = GRID.value
  if name != standard_input.DASH:
    name = shipped.find('--grid', name, shipped.GRIDS)
  with standard_input.as_file(name, '.py') as path:
    sys.exit(_run(runner.Experiment(_request(path))))


def _request(path):
  from rnn_jax.experiments import runner

  return runner.Request(
    path,
    WORKDIR.value,
    ONLY.value,
    SKIP.value,
    tuple(map(int, SEEDS.value)),
    tuple(SET.value),
  )


def _run(experiment):
  """Does what the flags ask for. Returns the exit code."""
  if not (LIST.value or REPORT.value):
    return experiment.go()
  print(experiment.listing() if LIST.value else experiment.report())
  return 0


if __name__ == '__main__':
  command.run(main)
