"""loss.png is drawn only from the metrics."""

import numpy as np
from matplotlib import axes
from matplotlib import pyplot

from rnn_jax import config as config_lib
from rnn_jax.runs import metrics
from rnn_jax.training import plots


def test_the_curve_is_an_image_with_content(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  for step in range(1, 9):
    writer.write(step, 'train', {'loss': 3.0 / step})
  writer.write(7, 'train', {'loss': float('nan')})
  writer.write(8, 'validation', {'loss': 0.5, 'best': 1.0})
  writer.write(9, 'validation', {'loss': float('inf'), 'best': 0.0})
  writer.close()
  pixels = pyplot.imread(plots.draw_loss(tmp_path))
  assert min(pixels.shape[:2]) > 300
  assert pixels.std() > 0.01


def test_without_finite_losses_nothing_is_drawn(tmp_path):
  assert plots.draw_loss(tmp_path) is None
  writer = metrics.Writer(tmp_path, 0)
  writer.write(1, 'train', {'loss': float('nan')})
  writer.close()
  assert plots.draw_loss(tmp_path) is None


def test_a_schedule_is_drawn_as_its_rates(tmp_path, monkeypatch):
  drawn = []
  plot = axes.Axes.plot
  monkeypatch.setattr(
    axes.Axes,
    'plot',
    lambda self, *given, **how: (
      drawn.extend(given) or plot(self, *given, **how)
    ),
  )
  raw = config_lib.default()
  raw.train.steps, raw.schedule.warmup_steps = 20, 4
  raw.schedule.name, raw.schedule.final_learning_rate = 'linear', 0.0
  path = tmp_path / 'folder' / 'rates.png'
  assert plots.draw_schedule(config_lib.parse(raw), path) == path
  pixels = pyplot.imread(path)
  assert min(pixels.shape[:2]) > 300 and pixels.std() > 0.01
  (rates,) = drawn
  rise = 1e-3 * np.arange(1, 5) / 4
  fall = 1e-3 * (1 - np.arange(16) / 16)
  np.testing.assert_allclose(rates, [*rise, *fall], rtol=1e-5)
