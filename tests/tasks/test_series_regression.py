"""Regression of series: its losses are their equations."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.runs import bundle as bundle_lib
from tests.support import labelled_series


def made(path, **changes):
  raw = labelled_series.raw_config(path, 'series_regression', **changes)
  config, corpus = labelled_series.corpus(raw)
  return bundle_lib.make_task(config, corpus.tokenizer)


def test_a_loss_is_its_equation(tmp_path):
  labelled_series.frame(label='number').to_csv(tmp_path / 't.csv', index=False)
  rng = np.random.default_rng(0)
  out, targets = 3 * rng.normal(size=(2, 4, 5, 1)).astype(np.float32)
  weights = np.array([[0, 0, 0, 0, 1]] * 4, np.float32)
  e = np.float64(out - targets)[:, -1, 0]
  huber = np.where(abs(e) <= 0.5, e**2 / 2, 0.5 * (abs(e) - 0.25))
  for changes, wanted in (
    ({}, e**2),
    ({'task.loss': 'huber', 'task.delta': 0.5}, huber),
  ):
    task = made(tmp_path / 't.csv', **changes)
    sums = task.target_sums(out, targets[..., 0], weights)
    got = task.summarize({name: float(x) for name, x in sums.items()})
    assert got['loss'] == pytest.approx(np.mean(wanted), rel=1e-5)
    assert got['error'] == pytest.approx(np.mean(abs(e)), rel=1e-5)


def test_what_has_no_effect_is_refused(tmp_path):
  for changes, says in (
    ({'task.delta': 2.0}, 'task.delta=2.0: it has no effect'),
    ({'train.label_smoothing': 0.1}, 'label_smoothing'),
  ):
    raw = labelled_series.raw_config(tmp_path, 'series_regression', **changes)
    with pytest.raises(errors.InputError, match=says):
      config_lib.parse(raw)
