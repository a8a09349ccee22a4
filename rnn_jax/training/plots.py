"""Figures of a run: its learning curve and its learning rates."""

import math
import os
import pathlib

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax import plots
from rnn_jax.runs import metrics
from rnn_jax.training import schedule as schedule_lib


def draw_loss(workdir: str | os.PathLike) -> pathlib.Path | None:
  """Draws the finite losses of a run to `workdir`/loss.png.

  Returns:
    The path; None if there is nothing to draw.
  """
  rows = metrics.read(workdir)
  rows = [row for row in rows if math.isfinite(row.get('loss', math.nan))]
  if not rows:
    return None
  figure, axes = plots.panel((7, 4.2))
  for split, line, style in (
    ('train', '-', {'lw': 1, 'alpha': 0.6}),
    ('validation', 'o-', {'ms': 4}),
  ):
    points = [(r['step'], r['loss']) for r in rows if r['split'] == split]
    if points:
      axes.plot(*zip(*points, strict=True), line, label=split, **style)
  if best := metrics.best(rows):
    axes.axhline(best['loss'], lw=0.8, ls=':', color='gray')
    text = f'best {best["loss"]:.4f} at step {best["step"]}'
    at = best['step'], best['loss']
    plots.label(axes, text, at, xytext=(-4, 14), ha='right', fontsize=10)
  _limit(axes, [row['loss'] for row in rows])
  axes.set(xlabel='step', ylabel='loss (nats per token)')
  axes.set_title(pathlib.Path(workdir).resolve().name)
  axes.legend()
  plots.dress(axes)
  return plots.save(figure, pathlib.Path(workdir) / 'loss.png')


def draw_schedule(
  config: config_lib.Config, path: str | os.PathLike
) -> pathlib.Path:
  """Draws the learning rate of a config by step and returns the path.

  How far evaluations lower it isn't known before the run.
  """
  schedule = schedule_lib.make(config)
  rates = jax.jit(
    lambda: jax.vmap(schedule.rate)(jnp.arange(config.train.steps))
  )()
  figure, axes = plots.panel((7, 3.6))
  axes.plot(jax.device_get(rates), lw=1.5)
  axes.set(xlabel='step', ylabel='learning rate')
  axes.set_ylim(bottom=0)
  title = config.schedule.name
  warmup = schedule_lib.settle(config).schedule.warmup_steps
  if warmup:
    title += f' after {warmup} steps of warm-up'
  if schedule.rescale:
    title += ', until evaluations lower it'
  axes.set_title(title)
  plots.dress(axes)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  return plots.save(figure, path)


def _limit(axes, losses):
  """Sets y limits that leave out the steep fall of the first steps."""
  losses = sorted(losses)
  low, high = losses[0], losses[int(0.97 * (len(losses) - 1))]
  if high > low:
    margin = 0.06 * (high - low)
    axes.set_ylim(low - margin, high + margin)
