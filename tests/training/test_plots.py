"""loss.png is drawn from the metrics alone."""

import pytest
from matplotlib import pyplot

from rnn_jax import errors
from rnn_jax.training import metrics
from rnn_jax.training import plots


def test_the_curve_is_a_picture_with_something_in_it(tmp_path):
  writer = metrics.Writer(tmp_path, 0)
  for step in range(1, 9):
    writer.write(step, 'train', {'loss': 3.0 / step})
  writer.write(8, 'validation', {'loss': 0.5})
  writer.close()
  pixels = pyplot.imread(plots.draw_loss(tmp_path))
  assert min(pixels.shape[:2]) > 300
  assert pixels.std() > 0.01


def test_nothing_to_draw_is_said(tmp_path):
  with pytest.raises(errors.InputError, match='no metrics'):
    plots.draw_loss(tmp_path)
