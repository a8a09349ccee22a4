"""Successive halving: at a few rungs the worst variants of a grid end.

With --halving=K, at most MAX_RUNGS rungs are at 1 / K^2 and 1 / K of a run's
steps, each at the run's next evaluation. After a rung one variant in K
continues, with all of its seeds. Every run keeps its config, schedule included:
it pauses at a rung and resumes from its checkpoint, so one that reaches its
last step equals a run that never paused.

Variants are compared by the main score of their best evaluation so far,
relative to the mean over the variants with the same seed, since a seed moves
all of them alike. With axes, only variants that differ in `best` are compared,
or else those of a column.
Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and
Hyperparameter Optimization", 2016.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable
from collections.abc import Sequence

from rnn_jax import errors
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import grid as grid_lib
from rnn_jax.experiments import plan

MAX_RUNGS = 2  # an earlier one would judge the warm-up

FLAG = '--halving'

Score = Callable[[plan.Run, int], float | None]  # (run, up to this step)


@dataclasses.dataclass(frozen=True)
class Halving:
  """The rungs of a grid, counted from 0; after the last one is the end.

  Attributes:
    runs: of the grid.
    groups: names of the variants that are compared with each other.
    metric: the main one.
    one_in: of so many variants one continues after a rung.
    rungs: how many there are.
  """

  runs: Sequence[plan.Run]
  groups: Sequence[Sequence[str]]
  metric: grid_lib.Metric
  one_in: int
  rungs: int

  def step(self, run: plan.Run, rung: int) -> int:
    """Returns the step of a rung, or a run's last one."""
    steps = run.config['train']['steps']
    if rung == self.rungs:
      return steps
    every = run.config['evaluate']['every']
    least = steps / self.one_in ** (self.rungs - rung)
    return math.ceil(least / every) * every

  def steps_to(self, run: plan.Run, rung: int) -> int:
    """Returns how many steps a run takes from the rung before."""
    return self.step(run, rung) - (self.step(run, rung - 1) if rung else 0)

  def alive(self, rung: int, score: Score) -> list[plan.Run]:
    """Returns the runs that reach a rung, or the end."""
    names = {
      name for group in self.groups for name in self._best(group, rung, score)
    }
    return [run for run in self.runs if run.variant in names]

  def pausing(self, rung: int, score: Score) -> list[plan.Run]:
    """Returns the runs that pause at a rung, since some of them end there."""
    names = {
      name
      for group in self.groups
      if self._count(group, rung + 1) < self._count(group, rung)
      for name in self._best(group, rung, score)
    }
    return [run for run in self.runs if run.variant in names]

  def ended(self, rung: int, score: Score) -> list[tuple[plan.Run, str]]:
    """Returns (a run that ends at a rung, why) of each."""
    ended = []
    for group in self.groups:
      order = [*self._relative(self._best(group, rung, score), rung, score)]
      kept = self._best(group, rung + 1, score)
      ended += [
        (
          run,
          f'at step {self.step(run, rung):,} of '
          f'{self.step(run, self.rungs):,}, '
          f'{order.index(run.variant) + 1} of {len(order)}',
        )
        for run in self.runs
        if run.variant in order and run.variant not in kept
      ]
    return ended

  def left(self, passed: Callable[[plan.Run, int], bool]) -> tuple[int, float]:
    """Returns about how many turns and steps are left.

    Args:
      passed: (run, rung) -> whether it has come so far.
    """
    turns = steps = 0.0
    for rung in range(self.rungs + 1):
      for group in self.groups:
        share = self._count(group, rung) / len(group)
        for run in self.runs:
          if run.variant in group:
            done = passed(run, rung)
            turns += share - done
            steps += (share - done) * self.steps_to(run, rung)
    return max(round(turns), 1), max(steps, 1.0)

  def describe(self) -> str:
    """Returns a line for each rung, and one on the cost in steps."""
    lines = []
    for rung in range(self.rungs + 1):
      steps = [self.step(run, rung) for run in self.runs]
      where = ' to '.join(f'{x:,}' for x in sorted({min(steps), max(steps)}))
      count = sum(self._count(group, rung) for group in self.groups)
      name = f'rung {rung + 1}' if rung < self.rungs else 'end'
      lines.append(f'{name}: step {where}, {count} variants')
    whole = sum(self.step(run, self.rungs) for run in self.runs)
    _, cost = self.left(lambda run, rung: False)
    lines.append(
      f'about {cost:,.0f} steps in place of {whole:,} ({cost / whole:.0%})'
    )
    return '\n'.join(lines)

  def _count(self, group, rung):
    """Returns how many variants of a group reach a rung."""
    return math.ceil(len(group) / self.one_in**rung)

  def _best(self, group, rung, score):
    """Returns the variants of a group that reach a rung."""
    names = list(group)
    for earlier in range(rung):
      count = self._count(group, earlier + 1)
      if len(names) > count:
        relative = self._relative(names, earlier, score)
        finite = [name for name, x in relative.items() if math.isfinite(x)]
        names = finite[:count]
    return names

  def _relative(self, names, rung, score):
    """Returns {variant: its mean, relative to the means of its seeds}.

    The best comes first; one that lacks a score has infinity, and is the last.
    """
    sign = -1 if self.metric.better == 'higher' else 1
    values, of_seed = {name: {} for name in names}, {}
    for run in self.runs:
      if run.variant in values:
        value = score(run, self.step(run, rung))
        value = math.inf if value is None else sign * value
        values[run.variant][run.seed] = value
        if math.isfinite(value):
          of_seed.setdefault(run.seed, []).append(value)
    relative = {
      name: statistics.fmean(
        value - statistics.fmean(of_seed.get(seed, [0.0]))
        for seed, value in own.items()
      )
      for name, own in values.items()
    }
    return dict(sorted(relative.items(), key=lambda item: item[1]))


def make(grid: grid_lib.Grid, runs: Sequence[plan.Run], one_in: int) -> Halving:
  """Returns the rungs of a grid's runs.

  Raises:
    InputError: nothing can end early, or a run has no evaluation at a rung.
  """
  groups: dict[tuple[str, ...], dict[str, None]] = {}
  for run in runs:
    place = grid.axes.place(run.variant)
    key = (place.lines, place.columns) if grid.axes.best else (place.columns,)
    groups.setdefault(key, {})[run.variant] = None
  if grid.axes == axes_lib.Axes(grid.axes.lines):
    groups = {(): {run.variant: None for run in runs}}
  largest = max(map(len, groups.values()))
  if largest < 2:
    errors.refuse(FLAG, one_in, 'no two variants are compared: leave it out')
  rungs = next(n for n in range(1, 64) if one_in**n >= largest)
  halving = Halving(
    runs,
    [tuple(names) for names in groups.values()],
    grid.compared[0],
    one_in,
    min(rungs, MAX_RUNGS),
  )
  for run in runs:
    _check(halving, run)
  return halving


def _check(halving, run):
  """Checks that a run has an evaluation at each rung."""
  steps, every = run.config['train']['steps'], run.config['evaluate']['every']
  given = f'{FLAG}={halving.one_in}: variant {run.variant!r}'
  if not steps:
    raise errors.InputError(
      f'{given} has train.epochs={run.config["train"]["epochs"]}: rungs are '
      'steps: give train.steps, and train.epochs=0'
    )
  most = steps // halving.one_in**halving.rungs
  if not 0 < every <= most:
    remedy = f'give from 1 to {most}' if most else 'give more train.steps'
    raise errors.InputError(
      f'{given} has train.steps={steps} and evaluate.every={every}, so none is '
      f'at the first rung, step {max(most, 1)}: {remedy}'
    )
