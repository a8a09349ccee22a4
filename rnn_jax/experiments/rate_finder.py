"""A rate finder: the training loss while the learning rate rises.

One short run of a config, whose rate rises from LOW to HIGH by the same factor
every step (schedules/exponential_rise.py), in a temporary folder. It ends where
the loss is no longer finite, or far above its lowest. The suggestion is the
rate at which the smoothed loss is lowest, divided by MARGIN: there the loss
falls fast, and a long training at the lowest itself would diverge.

The losses are of one step each. They are smoothed by means over their
neighbors on both sides, weighted by SMOOTHING to the power of the distance: an
average of earlier steps alone would place the lowest loss at too high a rate.
Source: Smith, "Cyclical Learning Rates for Training Neural Networks", 2017.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import tempfile

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import plots
from rnn_jax.config import config_file
from rnn_jax.experiments import plan
from rnn_jax.runs import origin
from rnn_jax.system import activity
from rnn_jax.training import assembly
from rnn_jax.training import initialize
from rnn_jax.training import restore

FLAG = '--find_rate'
STEPS = 140
LOW, HIGH = 1e-6, 10.0  # 20 steps a decade
MARGIN = 10.0
SMOOTHING = 0.8
WORST = 1.5  # of the lowest smoothed loss
# Of a run that isn't to be kept; those of its schedule are in `_config`.
CHANGES = {
  'train.steps': STEPS,
  'train.epochs': 0.0,
  'train.checkpoint_dir': '',
  'metrics.writers': (),
  'optimizer.learning_rate': HIGH,
  'schedule.name': 'exponential_rise',
  'schedule.warmup_steps': 0,
  'schedule.low_learning_rate': LOW,
}


@dataclasses.dataclass(frozen=True)
class Found:
  """What a run of a rate finder showed.

  Attributes:
    rates: of its steps.
    losses: of the batches of these steps, all finite.
    given: the config's own rate.
  """

  rates: tuple[float, ...]
  losses: tuple[float, ...]
  given: float

  @property
  def smoothed(self) -> tuple[float, ...]:
    """The losses, smoothed."""
    steps = np.arange(len(self.losses))
    weights = SMOOTHING ** np.abs(steps[:, None] - steps)
    return tuple(weights @ np.array(self.losses) / weights.sum(1))

  @property
  def lowest(self) -> float:
    """The rate with the lowest smoothed loss."""
    smoothed = self.smoothed
    return self.rates[smoothed.index(min(smoothed))]

  @property
  def suggestion(self) -> float:
    """The rate to try first."""
    return self.lowest / MARGIN

  def describe(self) -> str:
    """Returns what was found, in a few lines."""
    smoothed = self.smoothed
    return (
      f'optimizer.learning_rate={self.suggestion:.1e}: try it first, then a '
      f'third and three times of it (the config has {self.given:g})\n'
      f'the loss, smoothed, is lowest at {self.lowest:.1e}: {min(smoothed):.4f}'
      f', after {smoothed[0]:.4f} at {self.rates[0]:.0e}; the last of '
      f'{len(self.rates)} steps has {smoothed[-1]:.4f} at {self.rates[-1]:.1e}'
    )


def find(raw: config_file.Root, init: origin.Init | None = None) -> Found:
  """Runs the steps of a rate finder.

  Args:
    raw: a config, whose run isn't touched.
    init: the run that its run begins with, or None.

  Raises:
    InputError: as for training, or the loss is never finite.
  """
  config = _config(raw)
  points = []
  with tempfile.TemporaryDirectory() as folder:
    with _opened(config, folder, init) as trainer:
      lowest = math.inf
      with activity.doing('rates', STEPS, 'steps') as done:
        for _ in range(STEPS):
          rate, loss = _step(trainer)
          if not math.isfinite(loss):
            break
          points.append((rate, loss))
          last = Found(*zip(*points, strict=True), 0.0).smoothed[-1]
          lowest = min(lowest, last)
          if last > WORST * lowest:
            break
          done(1)
  if not points:
    raise errors.InputError(
      f'{FLAG}: the first loss is not finite: correct the data or the model'
    )
  return Found(*zip(*points, strict=True), raw.optimizer.learning_rate)


def draw(found: Found, path: str | os.PathLike) -> pathlib.Path:
  """Draws the loss against the rate and returns the path."""
  figure, axes = plots.panel((7, 3.8))
  axes.plot(
    found.rates,
    found.losses,
    '.',
    ms=3,
    color=plots.BLUE,
    label='step',
    alpha=0.5,
  )
  axes.plot(found.rates, found.smoothed, color=plots.BLUE, label='smoothed')
  for rate, label, style in (
    (found.suggestion, 'suggestion', '-'),
    (found.given, 'of the config', ':'),
  ):
    text = f'{label}: {rate:.1e}'
    axes.axvline(rate, color=plots.ORANGE, ls=style, label=text)
  axes.set_xscale('log')
  axes.set(xlabel='learning rate', ylabel='training loss')
  plots.dress(axes)
  plots.legend_below(figure, axes)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  return plots.save(figure, path)


def _config(raw):
  try:
    return config_lib.parse(plan.changed(raw, CHANGES))
  except errors.InputError as error:
    raise errors.InputError(f'{FLAG}: {error}') from error


@contextlib.contextmanager
def _opened(config, folder, init):
  """Yields the Trainer of a new run."""
  source = initialize.open_source(init, folder, config)
  resolved = assembly.resolve(config, folder, source)
  with contextlib.closing(assembly.make(resolved, folder)) as trainer:
    restore.restore(trainer, source)
    trainer.clock.enter('steps')
    yield trainer


def _step(trainer):
  """Takes a step; returns its rate, and the loss before its update."""
  trainer.next_batch()
  with trainer.step_clock():
    trainer.state, trainer.metrics = trainer.programs.train_step(
      trainer.state, trainer.batch
    )
  trainer.step += 1
  values = jax.device_get(trainer.metrics)
  if not values['finite']:
    return float(values['learning_rate']), math.nan
  sums = jax.tree.map(float, values['sums'])
  loss = trainer.programs.task.summarize(sums).get('loss', math.nan)
  return float(values['learning_rate']), loss
