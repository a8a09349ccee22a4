"""Runs variants and seeds of a config and compares them.

    python -m launch.experiments --config=configs/stdlib_bytes.py \\
        --vary=optimizer.learning_rate=1e-4,5e-4,2e-3 --seeds=0,1,2 \\
        --workdir=runs/rates

Several --vary make all combinations. A tuple is in parentheses, a text with a
comma in quotes: --vary=data.splits='(90,5,5),(80,10,10)'. Each key of the
config is a flag too, for every run: --config.train.steps=200. Variants that
don't form a grid are a file in configs/experiments/:

    python -m launch.experiments --grid=rotten_tomatoes \\
        --workdir=runs/rotten_tomatoes --set=data.path=PATH/train.jsonl \\
        --set=data.validation_path=PATH/validation.jsonl

All configs are checked and all data opened before the first run starts. Each
run is a launch.train and a launch.evaluate in its own folder. The same command
resumes where it stopped and retries failed runs, but not diverged ones.
--halving=3 trains all variants to a rung and only the best third further.
--list shows the runs, and the cost in steps; --report compares the results so
far and runs nothing.
"""

import contextlib
import math
import os
import sys

from absl import flags

from launch import command

PURPOSE = 'Train'
CONFIG = command.define_config(
  'A file in configs/, instead of --grid; each of its keys is a flag too.'
)
VARY = flags.DEFINE_multi_string(
  'vary', [], 'section.key=value,value of --config; repeatable.'
)
GRID = flags.DEFINE_string(
  'grid', None, 'A name, as memory_lab, or a Python file; -: standard input.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for all runs.')
ONLY = flags.DEFINE_string(
  'only', '', 'Run only the runs whose name matches this regex, see --list.'
)
SKIP = flags.DEFINE_string('skip', '', 'Skip the runs that match this regex.')
SEEDS = flags.DEFINE_list(
  'seeds', [], "Seeds to use instead of the config's or grid's: 0,1,2."
)
HALVING = flags.DEFINE_integer(
  'halving',
  None,
  'At two rungs, keep the best one in so many variants, as 3.',
  lower_bound=2,
)
DIVERGED_AT = flags.DEFINE_float(
  'diverged_at',
  3.0,
  'Stop a run whose training loss is so many times its first; 0: none.',
  lower_bound=0,
)
SET = flags.DEFINE_multi_string(
  'set', [], 'section.key=value for every run, e.g. data.path=FILE'
)
LIST = flags.DEFINE_bool('list', False, 'Print the runs and exit.')
REPORT = flags.DEFINE_bool(
  'report', False, 'Compare the results so far and exit.'
)
JSON = flags.DEFINE_bool(
  'json', False, 'Print the comparison as one JSON object, lines on stderr.'
)


def main(argv):
  from rnn_jax.experiments import runner

  del argv
  _check()
  if command.COMPILATION_CACHE.value is not None:
    os.environ['JAX_COMPILATION_CACHE_DIR'] = command.COMPILATION_CACHE.value
  command.see_current_folder()  # for what the grid or its config import
  with _grid() as grid:
    sys.exit(_run(runner.Experiment(_request(grid))))


@contextlib.contextmanager
def _grid():
  """Yields the path of --grid's file; '' without one."""
  from rnn_jax.system import shipped
  from rnn_jax.system import standard_input

  name = GRID.value or ''
  if name and name != standard_input.DASH:
    name = shipped.find('--grid', name, shipped.GRIDS)
  with standard_input.as_file(name, '.py') as path:
    yield path


def _request(grid):
  from rnn_jax.experiments import runner

  path, common = command.config_given()
  return runner.Request(
    workdir=WORKDIR.value,
    grid=grid,
    config=path,
    vary=tuple(VARY.value),
    common=common,
    only=ONLY.value,
    skip=SKIP.value,
    seeds=tuple(map(int, SEEDS.value)),
    settings=tuple(SET.value),
    modules=tuple(command.MODULES.value),
    halving=HALVING.value or 0,
    diverged_at=DIVERGED_AT.value,
  )


def _run(experiment):
  """Does what the flags ask for. Returns the exit code."""
  from rnn_jax.system import files
  from rnn_jax.system import streams

  if LIST.value or REPORT.value:
    streams.stdout_is_the_result()
  if LIST.value:
    print(experiment.listing())
    return 0
  code = 0
  with contextlib.redirect_stdout(sys.stderr if JSON.value else sys.stdout):
    if REPORT.value:
      print(experiment.report())
    else:
      code = experiment.go()
  if JSON.value:
    print(files.to_json(experiment.summary()))
  return code


def _check():
  """Raises InputError for flags that are missing or don't go together."""
  from rnn_jax import errors

  if not (GRID.value or CONFIG.value):
    raise errors.InputError(
      '--grid is missing: give it, or --config with --vary: see --help'
    )
  if GRID.value and CONFIG.value:
    raise errors.InputError(
      f'--grid={GRID.value}: it names a config itself: leave out --config'
    )
  if not WORKDIR.value:
    raise errors.InputError('--workdir is missing: see --help')
  if VARY.value and not CONFIG.value:
    raise errors.InputError(
      f'--vary={VARY.value[0]}: it changes keys of --config=FILE: give that'
    )
  if LIST.value and JSON.value:
    raise errors.InputError('--json: --list prints no JSON: leave one out')
  if not math.isfinite(DIVERGED_AT.value):
    raise errors.InputError(
      f'--diverged_at={DIVERGED_AT.value}: give a number, or 0 for no limit'
    )
  if not all(seed.isdecimal() for seed in SEEDS.value):
    raise errors.InputError(f'--seeds={",".join(SEEDS.value)}: give 0,1,2')
  if SEEDS.value and any(x.startswith('train.seed=') for x in VARY.value):
    raise errors.InputError(
      f'--seeds={",".join(SEEDS.value)}: --vary gives train.seed: leave one out'
    )


if __name__ == '__main__':
  command.run(main)
