"""The learning curve of a run and the rates of a schedule, as pictures."""

import math
import pathlib

import matplotlib

matplotlib.use('Agg')

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from matplotlib import pyplot  # noqa: E402

from rnn_jax.training import metrics  # noqa: E402
from rnn_jax.training import schedule as schedule_lib  # noqa: E402


def draw_loss(workdir):
  """Draws `workdir`/loss.png from its metrics and returns the path.

  What is not finite is left out.

  Returns:
    The path; None where there is nothing to draw.
  """
  rows = metrics.read(workdir)
  rows = [row for row in rows if math.isfinite(row.get('loss', math.nan))]
  if not rows:
    return None
  figure, axes = pyplot.subplots(figsize=(7, 4.2), layout='constrained')
  for split, style in (('train', '-'), ('validation', 'o-')):
    points = [(r['step'], r['loss']) for r in rows if r['split'] == split]
    if points:
      alone = {'lw': 1, 'alpha': 0.6} if split == 'train' else {'ms': 4}
      axes.plot(*zip(*points, strict=True), style, label=split, **alone)
  if best := metrics.best(rows):
    axes.axhline(best['loss'], lw=0.8, ls=':', color='gray')
    axes.annotate(
      f'best {best["loss"]:.4f} at step {best["step"]}',
      (best['step'], best['loss']),
      xytext=(-4, 14),
      textcoords='offset points',
      ha='right',
    )
  _limit(axes, rows)
  axes.set(xlabel='step', ylabel='loss (nats a token)')
  axes.set_title(pathlib.Path(workdir).resolve().name)
  axes.grid(alpha=0.3)
  axes.legend()
  path = pathlib.Path(workdir) / 'loss.png'
  figure.savefig(path, dpi=130)
  pyplot.close(figure)
  return path


def draw_schedule(config, path):
  """Draws the learning rate of a Config by step and returns the path.

  What evaluations make of it is not known before the run.
  """
  steps, made = config.train.steps, schedule_lib.make(config)
  rates = jax.jit(lambda: jax.vmap(made.rate)(jnp.arange(steps)))()
  figure, axes = pyplot.subplots(figsize=(7, 3.6), layout='constrained')
  axes.plot(jax.device_get(rates), lw=1.5)
  axes.set(xlabel='step', ylabel='learning rate')
  axes.set_ylim(bottom=0)
  name, warmup = config.schedule.name, config.schedule.warmup_steps
  title = f'{name} behind {warmup} steps of warm-up' if warmup else name
  if made.rescale:
    title += ', until evaluations lower it'
  axes.set_title(title)
  axes.grid(alpha=0.3)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=130)
  pyplot.close(figure)
  return path


def _limit(axes, rows):
  """Keeps the first steps' steep fall from flattening all that follows."""
  losses = sorted(row['loss'] for row in rows)
  low, high = losses[0], losses[int(0.97 * (len(losses) - 1))]
  if high > low:
    margin = 0.06 * (high - low)
    axes.set_ylim(low - margin, high + margin)
