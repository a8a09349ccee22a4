"""The linear map by least squares, against NumPy's own."""

import numpy as np
import pytest

from rnn_jax.runs import bundle as bundle_lib
from tests.support import draws
from tests.support import series


@pytest.fixture(name='path')
def _path(tmp_path):
  path = tmp_path / 'series.csv'
  series.frame().to_csv(path, index=False)
  return path


@pytest.mark.parametrize('unit', ('window', 'series'))
def test_a_new_model_has_the_least_squares(path, unit):
  changes = {'task.ridge': 0.01, 'task.unit': unit, 'task.members': 2}
  config, corpus = series.corpus(series.raw_config(path, **changes))
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  params = task.init_from_data(params, corpus)
  examples, H = corpus.examples(config.data, 'train'), series.HORIZON
  rows, wanted = [], []
  for n in range(3):
    steps = examples.read(n)
    whole = (steps.weights_L > 0) & ~np.isnan(steps.future_LxH).any(1)
    for t in np.flatnonzero(whole):
      x = np.float64(steps.readings_LxW[t])
      loc = np.nanmean(x)
      scale = np.nanmean(np.abs(x - loc)) + 0.01 * np.nanmean(np.abs(x))
      z = np.nan_to_num((x - loc) / scale)
      seen = x[~np.isnan(x)]
      season = x[[2, 3, 4, 5, 6]]  # W - 6 on: one season before
      anchor = np.where(np.isnan(season), seen[-1], season)
      size = scale if unit == 'series' else 1.0
      rows.append(z * size)
      wanted.append((steps.future_LxH[t] - anchor) / scale * size)
  X, Y = np.array(rows), np.array(wanted)
  square = X.T @ X
  square += 0.01 * np.trace(square) / len(square) * np.eye(len(square))
  kernel_WxH = np.linalg.solve(square, X.T @ Y)
  assert kernel_WxH.shape == (series.WINDOW, H)
  for member in ('member_0', 'member_1'):
    np.testing.assert_allclose(
      params[member]['direct']['kernel'], kernel_WxH, rtol=2e-3, atol=2e-4
    )
