"""The commands of a run: how each is called, and what it measured.

A command is a process of its own. What it prints goes to the run's log; its
last line, or its files, have the figures.
"""

import dataclasses
import json
import pathlib
import sys
from typing import Any

from rnn_jax.config import parts
from rnn_jax.experiments import costs as costs_lib
from rnn_jax.experiments import divergence
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan
from rnn_jax.experiments import records
from rnn_jax.experiments import terminal
from rnn_jax.inspection import curves
from rnn_jax.runs import signals
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.system import subprocesses
from rnn_jax.training import hooks
from rnn_jax.training import log as log_lib

FINISHED = 'trained: '  # how launch.train begins its last message
PAUSED = f'{hooks.PAUSED}: '  # or, at a rung, the message of its pause
OF_MODEL = 'parameters', 'state_bytes'  # what launch.evaluate says of it


@dataclasses.dataclass(frozen=True)
class Commands:
  """The commands of a grid's runs; each run has a folder in `workdir`."""

  grid: grid_lib.Grid
  workdir: pathlib.Path
  modules: tuple[str, ...]  # to import first
  diverged_at: float = 0.0  # times its first loss; 0: no loss is too much

  def execute(
    self, run: plan.Run, stop: signals.StopRequest, pause_at: int = 0
  ) -> dict[str, Any]:
    """Executes a run. Returns its row, which is useless if it was stopped.

    Args:
      run: of the grid.
      stop: the signals that stop it.
      pause_at: a step at which its training pauses, and no other command
        runs; 0: none.
    """
    scores: dict[str, Any] = {}
    costs: dict[str, Any] = {}
    error, seconds = '', 0.0
    folder = self.workdir / run.name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / workdir_lib.LOG, 'a', encoding='utf-8') as log:
      for name, split in self._calls():
        line = self.line(name, run, split)
        if pause_at and name == 'train':
          line.append(f'--pause_at={pause_at}')
        ended = self._call(name, run, line, log, stop)
        seconds += ended.seconds
        error, figures = _figures(name, ended, folder)
        if split not in ('', self.grid.split):
          figures = {f'{split}.{key}': x for key, x in figures.items()}
        if name == 'evaluate' and split == self.grid.split:
          scores.clear()  # those of the training's own evaluation
        measured = costs if name in costs_lib.COMMANDS else scores
        measured |= figures
        paused = any(line.startswith(PAUSED) for line in ended.out)
        if error or paused or stop.name:
          break
    costs |= {key: scores.pop(key, None) for key in OF_MODEL}
    status = 'failed' if error else 'paused' if paused else 'done'
    if error.startswith(log_lib.DIVERGED):
      status, error = 'diverged', error.removeprefix(log_lib.DIVERGED)
    why = f'{name}: {error}' if error else ''
    done = {'scores': {} if error else scores, 'wall_seconds': seconds}
    return self.row(run, status, why) | done | costs

  def row(
    self, run: plan.Run, status: str, error: str, rung: int = 0
  ) -> dict[str, Any]:
    """Returns the row of a run without scores, see records.py."""
    return {
      'variant': run.variant,
      'seed': run.seed,
      'status': status,
      'error': error,
      'rung': rung,
      'split': self.grid.split,
      'commands': self.grid.commands,
      'scores': {},
      'wall_seconds': 0.0,
      **records.describe(run, self.workdir / run.name),
    }

  def _calls(self):
    """Returns (command, split) of each call, '' for no split."""
    return [
      (name, split)
      for name in self.grid.commands
      for split in (self.grid.splits if name == 'evaluate' else ('',))
    ]

  def _call(self, name, run, line, log, stop):
    steps = run.config['train']['steps'] if name == 'train' else 0
    watch = divergence.Watch(self.workdir / run.name, self.diverged_at)
    with terminal.watching(f'{run.name}, {name}', steps) as see:
      ended = subprocesses.run(
        line,
        variables=subprocesses.environment() | {'PYTHONUNBUFFERED': '1'},
        log=log,
        show=lambda text: (see(text), watch.see(text)),
        stop=lambda: bool(stop.name or watch.found),
      )
    return ended._replace(code=1, err=[watch.found]) if watch.found else ended

  def line(self, name: str, run: plan.Run, split: str) -> list[str]:
    """Returns the command line of one of COMMANDS, as a user types it."""
    folder = self.workdir / run.name
    workdir, profile = f'--workdir={folder}', folder / costs_lib.PROFILE
    flags = {
      'train': [workdir, *run.flags],
      'evaluate': [workdir, f'--split={split}', '--json'],
      'inspect': [workdir, '--json'],
      # A cached program would seem to compile at once.
      'profile': [f'--workdir={profile}', '--compilation_cache=', *run.flags],
      'find_batch_size': [
        f'--memory_gib={self.grid.memory_gib}',
        '--json',
        *run.flags,
      ],
    }[name]
    # A command that opens the run imports none that only its config names.
    modules = dict.fromkeys(self.modules + parts.own_modules(run.config))
    own = [f'--modules={",".join(modules)}'] if modules else []
    return [sys.executable, '-m', 'rnn_jax', name, *flags, *own]


def _figures(
  name: str, ended: subprocesses.Result, folder: pathlib.Path
) -> tuple[str, dict[str, Any]]:
  """Returns (a command's error or '', the scores or costs that it measured)."""
  if name == 'train':
    error = ended.error
    if not any(x.startswith((FINISHED, PAUSED)) for x in ended.out):
      error = error or 'it was stopped before its last step'
    return error, records.best_scores(folder)
  if ended.error:
    return ended.error, {}
  if name == 'profile':
    return '', costs_lib.of_profile(folder / costs_lib.PROFILE)
  try:
    values = json.loads(ended.out[-1])
  except (IndexError, ValueError):
    values = None
  if not isinstance(values, dict):
    return "its last line isn't a JSON object", {}
  if name == 'find_batch_size':
    values = {'largest_batch': values.get('rows')}
  if name == 'inspect':
    octaves = curves.octaves(values['flow'])
    values = {f'flow.{delay}': norm for delay, norm in octaves.items()}
  return '', values
