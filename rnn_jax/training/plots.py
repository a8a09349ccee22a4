"""Figures of a run: its learning curve and its learning rates."""

import math
import os
import pathlib

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import plots
from rnn_jax.runs import metrics
from rnn_jax.training import schedule as schedule_lib


def draw_loss(
  workdir: str | os.PathLike, config: config_lib.Config
) -> pathlib.Path | None:
  """Draws the finite losses of a run to `workdir`/loss.png.

  If errors decide which checkpoint is the best, they have a panel of their own.

  Args:
    workdir: the run's folder.
    config: of the run.

  Returns:
    The path; None if there is nothing to draw.
  """
  curves = [(f'loss (nats per {config.task.loss_per})', _loss)]
  if config.evaluate.criterion == 'errors':
    curves.append(('error rate', _errors))
  rows = metrics.read(workdir)
  for _, value in curves:
    rows = [row for row in rows if math.isfinite(value(row))]
  if not rows:
    return None
  size = 7, 1.2 + 3.2 * len(curves)
  figure, panels = plots.panels(size, len(curves), sharex=True)
  for axes, (label, value) in zip(panels[:, 0], curves, strict=True):
    _draw_curve(axes, rows, value)
    axes.set_ylabel(label)
  if best := metrics.best(rows):
    name = label.partition(' (')[0]  # the last panel is the criterion's
    text = f'best {name}: {value(best):.4f} at step {best["step"]:,}'
    _mark(axes, text, (best['step'], value(best)))
  axes.set_xlabel('step')
  plots.tick_steps(axes, max(row['step'] for row in rows))
  panels[0, 0].set_title(pathlib.Path(workdir).resolve().name)
  plots.legend_below(figure, *panels[:, 0])
  return plots.save(figure, pathlib.Path(workdir) / 'loss.png')


def _loss(row):
  return row.get('loss', math.nan)


def _errors(row):
  return 1 - row.get('accuracy', math.nan)


def _draw_curve(axes, rows, value):
  """Draws a curve of each split."""
  for split, color, style in (
    ('train', plots.BLUE, {'ms': 2, 'lw': 1, 'alpha': 0.7}),
    ('validation', plots.ORANGE, {'ms': 4}),
  ):
    points = [(r['step'], value(r)) for r in rows if r['split'] == split]
    if points:
      x, y = zip(*points, strict=True)
      axes.plot(x, y, 'o-', color=color, label=split, **style)
  plots.dress(axes)
  _limit(axes, [value(row) for row in rows])


def _mark(axes, text, at):
  """Draws a ring around a point; the legend has the text."""
  style = {'ms': 11, 'mfc': 'none', 'color': plots.COLORS[2], 'mew': 1.5}
  axes.plot(*at, 'o', ls='', label=text, clip_on=False, **style)


def draw_schedule(
  config: config_lib.Config, path: str | os.PathLike
) -> pathlib.Path:
  """Draws the learning rate of a config by step and returns the path.

  How far evaluations lower it isn't known before the run.

  Raises:
    InputError: the number of steps isn't known.
  """
  if not config.train.steps:
    errors.refuse(
      'train.steps',
      0,
      'the data say how many steps train.epochs takes: give their number, as '
      'training prints it, and train.epochs=0',
    )
  schedule = schedule_lib.make(config)
  rates = jax.jit(
    lambda: jax.vmap(schedule.rate)(jnp.arange(config.train.steps))
  )()
  figure, axes = plots.panel((7, 3.6))
  axes.plot(jax.device_get(rates), lw=1.5)
  axes.set(xlabel='step', ylabel='learning rate')
  axes.set_ylim(bottom=0)
  plots.tick_ends(axes.yaxis)
  plots.tick_steps(axes, config.train.steps)
  title = config.schedule.name
  warmup = config.schedule.warmup_steps
  if warmup:
    title += f' after {warmup} steps of warm-up'
  if schedule.rescale:
    title += ', until evaluations lower it'
  axes.set_title(title)
  plots.dress(axes)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  return plots.save(figure, path)


def _limit(axes, values):
  """Sets y limits that leave out the steep fall of the first steps."""
  values = sorted(values)
  low, high = values[0], values[round(0.97 * (len(values) - 1))]
  margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
  axes.set_ylim(low - margin, high + margin)
  plots.tick_ends(axes.yaxis)
