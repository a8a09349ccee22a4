"""A grid on the terminal: a line when a run starts and ends, then a table.

[2/6] learning_rate=0.0005,seed=0: its output is in runs/x/.../run.log
[2/6] learning_rate=0.0005,seed=0: loss 2.345, 35 s; about 2 min left
"""

import contextlib
import re
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from rnn_jax import tables as tables_lib
from rnn_jax.experiments import costs as costs_lib
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import summary as summary_lib
from rnn_jax.experiments import tables
from rnn_jax.system import activity

STEP = re.compile(r'step (\d+)/\d+ ')  # as launch.train prints it
MARK = ' *'


class Progress:
  """Says when runs start and end, and how much time the rest will take."""

  def __init__(
    self, runs: int, main: grid_lib.Metric, work: float = 0.0
  ) -> None:
    """Begins.

    Args:
      runs: how many there are to do.
      main: the score to show.
      work: of all of them, in any unit; 0: each is as much as another.
    """
    self._runs = runs
    self._main = main
    self._left = work or float(runs)
    self._done = 0.0
    self._seconds: list[float] = []  # of each run that ended

  def start(self, name: str, log: str) -> None:
    """Says that a run starts, and where its output is."""
    _say(f'{self._number(1)} {name}: its output is in {log}')

  def end(self, name: str, row: dict[str, Any], work: float = 1.0) -> None:
    """Says how a run ended, and how much of all work it was."""
    self._seconds.append(row['wall_seconds'])
    self._done += work
    self._left = max(self._left - work, 0.0)
    score = row['scores'].get(self._main.key)
    if row['error']:
      result = f'{row["status"]}: {row["error"]}'
    else:
      result = f'{self._main.label} {tables.shown(self._main.key, score)}'
    line = f'{self._number(0)} {name}: {result}, {_time(self._seconds[-1])}'
    if self._runs > len(self._seconds):
      left = self._left * sum(self._seconds) / self._done
      line += f'; about {_time(left)} left'
    _say(line)

  def _number(self, more):
    return f'[{len(self._seconds) + more}/{self._runs}]'


@contextlib.contextmanager
def watching(name: str, steps: int = 0) -> Iterator[Callable[[str], None]]:
  """Names a run in what is reported during long silence.

  Args:
    name: of the run and its command.
    steps: of training; 0: it doesn't train.

  Yields:
    see(line), to call with each line of its output.
  """
  last = 0
  with activity.doing(name, steps, 'steps' if steps else '') as done:

    def see(line: str) -> None:
      nonlocal last
      if match := STEP.match(line):
        done(int(match[1]) - last)
        last = int(match[1])

    yield see


def table(summary: dict[str, Any]) -> str:
  """Returns scores, speed and memory of all variants; the best are marked."""
  memory = costs_lib.first(costs_lib.MEMORY, summary['costs'])
  costs = [
    cost
    for cost in summary['costs']
    if cost['key'] in ('tokens_per_second', memory)
  ]
  best = {
    m['key']: tables.best(m, summary['variants']) for m in summary['metrics']
  }
  lines = []
  for name, variant in summary['variants'].items():
    if not summary_lib.ended(variant):
      continue
    marked = [
      tables.cell(key, variant) + (MARK if name in names else '')
      for key, names in best.items()
    ]
    others = [tables.cell(cost['key'], variant) for cost in costs]
    lines.append([name, tables.runs(variant), *marked, *others])
  heads = [column['label'] for column in (*summary['metrics'], *costs)]
  text = '\n'.join(tables_lib.aligned(['variant', 'runs', *heads], lines))
  legend = f'{MARK.strip()} the best, or no difference seen from it'
  return f'{text}\n{legend}' if any(best.values()) else text


def _time(seconds):
  for unit, size in (('h', 3600), ('min', 60)):
    if seconds >= 2 * size:
      return f'{seconds / size:.3g} {unit}'
  return f'{seconds:.0f} s'


def _say(line):
  print(line, flush=True)
  activity.spoke()
