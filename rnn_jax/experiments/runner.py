"""Runs a grid, one process at a time, and resumes where it was stopped.

<workdir>/runs.jsonl               a row for each run that ended
<workdir>/<variant>/seed<k>/       a run's folder, with its run.log
<workdir>/report.md, report.json   and the plots that the rows allow
"""

import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.experiments import commands
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import halving as halving_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import records
from rnn_jax.experiments import report
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import terminal
from rnn_jax.experiments import vary
from rnn_jax.runs import same_run
from rnn_jax.runs import signals
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import files
from rnn_jax.system import signal_thread
from rnn_jax.training import resolve

FAILED = 1


@dataclasses.dataclass(frozen=True)
class Request:
  """What the command line asks for: a grid, or a config and what varies."""

  workdir: str
  grid: str = ''  # path of a grid file
  config: str = ''  # path of a config file
  vary: tuple[str, ...] = ()  # 'section.key=value,value' of the config
  common: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  only: str = ''
  skip: str = ''
  seeds: tuple[int, ...] = ()  # empty: the grid's
  settings: tuple[str, ...] = ()  # 'section.key=value', for every run
  modules: tuple[str, ...] = ()  # to import first, of each command
  halving: int = 0  # one in so many continues after a rung; 0: all do
  diverged_at: float = 0.0  # times its first loss; 0: no loss is too much


class _Turn(NamedTuple):
  """What a run does next."""

  run: plan.Run
  pause_at: int = 0  # a step; 0: it runs to its last
  work: float = 1.0  # relative to other turns


class Experiment:
  """A grid with its work folder.

  Raises:
    InputError: on construction, for any run that couldn't begin.
  """

  def __init__(self, request: Request):
    common = request.common
    if request.grid:
      self.grid = grid_lib.load(request.grid)
    else:
      self.grid = vary.make(
        request.config, request.vary, request.settings, common
      )
      common = {k: x for k, x in common.items() if k != plan.SEED}
    if request.seeds:
      grid_lib.check_seeds(request.seeds, '--seeds')
    self._plan = plan.make(self.grid, request.settings, common)
    runs = [
      self._plan(variant, seed)
      for seed in request.seeds or self.grid.seeds
      for variant in self.grid.variants
    ]
    self.runs = plan.select(runs, request.only, request.skip)
    self.workdir = request.workdir
    self.commands = commands.Commands(
      self.grid,
      pathlib.Path(self.workdir),
      request.modules,
      request.diverged_at,
    )
    self._halving = (
      halving_lib.make(self.grid, self.runs, request.halving)
      if request.halving
      else None
    )

  def listing(self) -> str:
    """Returns a line for each run: its name and state; then the rungs."""
    rows = records.read(self.workdir)
    width = max(len(run.name) for run in self.runs)
    lines = [
      f'{run.name:<{width}}  {self._state(run, rows)}' for run in self.runs
    ]
    if self._halving:
      lines += ['', self._halving.describe()]
    return '\n'.join(lines)

  def summary(self) -> dict[str, Any]:
    """Returns the comparison of all runs so far, see summary.summarize."""
    return summary_lib.summarize(self.grid, records.read(self.workdir))

  def report(self) -> str:
    """Writes the comparison of all runs so far and returns it for people."""
    rows = records.read(self.workdir)
    summary = report.write(self.grid, rows, self.workdir)
    lines = [
      terminal.table(summary),
      '',
      *report.sentences(summary),
      f'{self.workdir}/report.md',
    ]
    return '\n'.join(lines)

  def go(self) -> int:
    """Runs what is left, then compares. Returns the exit code."""
    check_data(self._left())
    with records.open_folder(self.workdir):
      self._refuse_changes(records.read(self.workdir))
      left = self._left()
      if done := len(self.runs) - len(left):
        print(f'{done} of {len(self.runs)} runs are done already', flush=True)
      progress = self._progress(left)
      with signals.StopRequest() as stop:
        for run, pause_at, work in self._turns():
          progress.start(run.name, str(self._folder(run) / workdir_lib.LOG))
          row = self.commands.execute(run, stop, pause_at)
          if stop.name:
            print(
              f'{stop.name}: stopped in {run.name}: the same command resumes',
              file=sys.stderr,
            )
            return signal_thread.exit_code(stop.name)
          progress.end(run.name, row, work)
          if row['status'] == 'paused':
            self._check_scored(run, pause_at)
          else:
            records.append(self.workdir, row)
      print(self.report())
    return self._conclude()

  def _turns(self):
    """Yields what is left in its order, each once its turn has come."""
    halving = self._halving
    if not halving:
      yield from map(_Turn, self._left())
      return
    for rung in range(halving.rungs):
      for run in halving.pausing(rung, self._score):
        if not self._has_passed(run, rung):
          step = halving.step(run, rung)
          yield _Turn(run, step, halving.steps_to(run, rung))
      self._eliminate(rung)
    for run in halving.alive(halving.rungs, self._score):
      if not self._has_passed(run, halving.rungs):
        yield _Turn(run, 0, halving.steps_to(run, halving.rungs))

  def _progress(self, left):
    turns, work = len(left), float(len(left))
    if self._halving:
      turns, work = self._halving.left(self._has_passed)
    return terminal.Progress(turns, self.grid.compared[0], work)

  def _has_passed(self, run, rung):
    """Returns whether a run has reached a rung, or ended."""
    if self._is_over(run, records.read(self.workdir)):
      return True
    step = self._halving.step(run, rung)
    reached = records.last_evaluation(self._folder(run)) >= step
    return reached and rung < self._halving.rungs

  def _score(self, run, step):
    """Returns the main score of a run as of a rung's step, or None.

    What happened to it after that step must not change what the rung decided.
    """
    row = records.read(self.workdir).get((run.variant, run.seed))
    folder = self._folder(run)
    ended = row is not None and row['status'] == 'done'
    if not ended and records.last_evaluation(folder) < step:
      return None
    key = self.grid.compared[0].key
    value = records.best_scores(folder, step).get(key)
    return value if value is not None and math.isfinite(value) else None

  def _check_scored(self, run, step):
    """Raises InputError if a run that pauses has no main score."""
    scores = records.best_scores(self._folder(run), step)
    key = self.grid.compared[0].key
    if key not in scores:
      raise errors.InputError(
        f'{halving_lib.FLAG}: the evaluation of {run.name} at step {step} has '
        f'no {key!r}, by which variants are compared, but '
        f'{", ".join(scores) or "no score"}: name one of these first in '
        "the grid's metrics, and give the config validation documents"
      )

  def _eliminate(self, rung):
    """Adds the rows of the runs that end at a rung."""
    rows = records.read(self.workdir)
    for run, why in self._halving.ended(rung, self._score):
      row = rows.get((run.variant, run.seed), {'status': 'paused'})
      if row['status'] == 'paused':
        records.append(
          self.workdir, self.commands.row(run, 'eliminated', why, rung + 1)
        )
        print(f'{run.name}: eliminated {why}', flush=True)

  def _left(self):
    rows = records.read(self.workdir)
    return [run for run in self.runs if not self._is_over(run, rows)]

  def _is_over(self, run, rows):
    row = rows.get((run.variant, run.seed), {'status': ''})
    return row['status'] == 'diverged' or self._state(run, rows) == 'done'

  def _state(self, run, rows):
    row = rows.get((run.variant, run.seed))
    if row is None:
      return 'to do'
    if row['status'] != 'done':
      return f'{row["status"]}: {row["error"]}'
    if row['split'] != self.grid.split:
      return 'to evaluate'
    commands = self.grid.commands
    missing = [x for x in commands if x not in row.get('commands', commands)]
    return f'to do: {", ".join(missing)}' if missing else 'done'

  def _refuse_changes(self, rows):
    """Raises InputError if a run that has begun has another config now."""
    changes = []
    selected = {(run.variant, run.seed) for run in self.runs}
    for variant, seed in sorted(selected | rows.keys()):
      if variant not in self.grid.variants:
        continue
      run = self._plan(variant, seed)
      then = self._first_config(run, rows.get((variant, seed)))
      changes += [
        f'{run.name}: {line}' for line in same_run.differences(then, run.config)
      ]
    if changes:
      listed = '\n  '.join(changes)
      raise errors.InputError(
        f'workdir={self.workdir!r} has runs with other values than the grid, '
        f'its config or --set give now:\n  {listed}\n'
        'restore these values, give the variant a new name, or use another '
        '--workdir'
      )

  def _first_config(self, run, row):
    if row and row['status'] in ('done', 'diverged'):
      return row['config']
    folder = self._folder(run)
    if any((folder / 'checkpoints').glob('[0-9]*')):
      return workdir_lib.load_config(folder)
    return run.config

  def _folder(self, run):
    return pathlib.Path(self.workdir) / run.name

  def _conclude(self):
    rows = records.read(self.workdir)
    failed = [
      run.name
      for run in self.runs
      if rows[run.variant, run.seed]['status'] == 'failed'
    ]
    if not failed:
      return 0
    print(
      f'{len(failed)} of {len(self.runs)} runs failed: {", ".join(failed)}: '
      'the same command retries them',
      file=sys.stderr,
    )
    return FAILED


def check_data(runs: Iterable[plan.Run]) -> None:
  """Opens the data of runs, each once.

  Raises:
    InputError: some are missing, empty or unfit; names the first such variant.
  """
  seen = set()
  for run in runs:
    sections = {key: run.config[key] for key in ('task', 'data', 'evaluate')}
    if (key := files.to_json(sections)) in seen:
      continue
    seen.add(key)
    try:
      config = resolve.of_data(config_lib.parse(run.config))
      corpus_lib.load_documents(config)
    except errors.InputError as error:
      raise errors.InputError(f'variant {run.variant!r}: {error}') from error
