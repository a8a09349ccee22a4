"""loss.png is drawn only from the metrics."""

import numpy as np
import pytest
from matplotlib import axes
from matplotlib import pyplot

from rnn_jax import config as config_lib
from rnn_jax import plots as base
from rnn_jax.runs import metrics
from rnn_jax.training import plots

LANGUAGE = config_lib.parse(config_lib.default())


def classes():
  raw = config_lib.default(task='classification')
  raw.data.classes = ('no', 'yes')
  raw.evaluate.criterion = 'errors'
  return config_lib.parse(raw)


@pytest.fixture
def drawn(monkeypatch):
  """The figures that are saved."""
  figures, save = [], base.save
  monkeypatch.setattr(
    base,
    'save',
    lambda figure, path: figures.append(figure) or save(figure, path),
  )
  return figures


def write(folder, *rows):
  writer = metrics.Writer(folder, 0, ())
  for step, split, values in rows:
    writer.write(step, split, values)
  writer.close()


def legend(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def labelled(axis):
  """The places of an axis that have a label."""
  low, high = sorted(axis.get_view_interval())
  places = axis.get_majorticklocs()
  labels = axis.get_major_formatter().format_ticks(places)
  named = zip(places, labels, strict=True)
  return [x for x, label in named if low <= x <= high and label]


def test_the_curve_is_an_image_with_content(tmp_path, drawn):
  write(
    tmp_path,
    *((step, 'train', {'loss': 3.0 / step}) for step in range(1, 9)),
    (7, 'train', {'loss': float('nan')}),
    (8, 'validation', {'loss': 0.5, 'best': 1.0}),
    (9, 'validation', {'loss': float('inf'), 'best': 0.0}),
  )
  pixels = pyplot.imread(plots.draw_loss(tmp_path, LANGUAGE))
  assert min(pixels.shape[:2]) > 300
  assert pixels.std() > 0.01
  (figure,) = drawn
  assert figure.axes[0].get_ylabel() == 'loss (nats per token)'
  assert legend(figure)[-1] == 'best loss: 0.5000 at step 8'


def test_the_best_of_a_classifier_is_marked_where_its_criterion_is(
  tmp_path, drawn
):
  write(
    tmp_path,
    (2, 'train', {'loss': 0.9, 'accuracy': 0.5}),
    (2, 'validation', {'loss': 0.7, 'accuracy': 0.6, 'best': 1.0}),
    (4, 'validation', {'loss': 0.8, 'accuracy': 0.75, 'best': 1.0}),
  )
  plots.draw_loss(tmp_path, classes())
  (figure,) = drawn
  losses, errors = figure.axes
  assert losses.get_ylabel() == 'loss (nats per text)'
  assert errors.get_ylabel() == 'error rate'
  assert legend(figure)[-1] == 'best error rate: 0.2500 at step 4'
  (ring,) = [x for x in errors.lines if x.get_label().startswith('best')]
  np.testing.assert_allclose(ring.get_xydata(), [[4, 0.25]])
  assert not any(x.get_label().startswith('best') for x in losses.lines)


def test_each_axis_of_a_short_run_has_ticks_at_both_ends(tmp_path, drawn):
  write(tmp_path, (5, 'train', {'loss': 5.8}), (5, 'validation', {'loss': 5.5}))
  plots.draw_loss(tmp_path, LANGUAGE)
  (axes,) = drawn[0].axes
  assert labelled(axes.xaxis) == [0, 1, 2, 3, 4, 5]
  ticks = labelled(axes.yaxis)
  assert (ticks[0], ticks[-1]) == tuple(axes.get_ylim())
  for line in axes.lines:  # every point is inside
    assert (axes.get_ylim()[0] <= line.get_ydata()).all()
    assert (axes.get_ylim()[1] >= line.get_ydata()).all()


def test_without_finite_losses_nothing_is_drawn(tmp_path):
  assert plots.draw_loss(tmp_path, LANGUAGE) is None
  write(tmp_path, (1, 'train', {'loss': float('nan')}))
  assert plots.draw_loss(tmp_path, LANGUAGE) is None


@pytest.mark.parametrize('limits', ((0.3, 0.4), (2, 4), (3, 80), (1e-9, 1e9)))
def test_a_logarithmic_axis_has_two_labels_or_more(limits):
  _, axes = base.panel((3, 2))
  axes.set(xscale='log', xlim=limits)
  base.name_ticks(axes.xaxis)
  assert 2 <= len(labelled(axes.xaxis)) <= 13


def test_the_last_step_has_a_label_that_touches_no_other():
  for last in (1, 2, 7, 60, 700, 1000, 1234):
    _, axes = base.panel((3, 2))
    base.tick_steps(axes, last)
    found = labelled(axes.xaxis)
    assert (found[0], found[-1]) == (0, last)
    assert min(np.diff(found)) >= max(np.diff(found)) / 2


def test_a_schedule_is_drawn_as_its_rates(tmp_path, monkeypatch):
  lines = []
  plot = axes.Axes.plot
  monkeypatch.setattr(
    axes.Axes,
    'plot',
    lambda self, *given, **how: (
      lines.extend(given) or plot(self, *given, **how)
    ),
  )
  raw = config_lib.default()
  raw.train.steps, raw.schedule.warmup_steps = 20, 4
  raw.schedule.name, raw.schedule.final_learning_rate = 'linear', 0.0
  path = tmp_path / 'folder' / 'rates.png'
  assert plots.draw_schedule(config_lib.parse(raw), path) == path
  pixels = pyplot.imread(path)
  assert min(pixels.shape[:2]) > 300 and pixels.std() > 0.01
  (rates,) = lines
  rise = 1e-3 * np.arange(1, 5) / 4
  fall = 1e-3 * (1 - np.arange(16) / 16)
  np.testing.assert_allclose(rates, [*rise, *fall], rtol=1e-5)
