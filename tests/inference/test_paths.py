"""Drawn paths: of the stream's distributions, whatever is drawn with them."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rnn_jax import errors
from rnn_jax.inference import forecast as forecast_lib
from rnn_jax.inference import model as model_lib
from tests.support import series

KNOWN = {'data.known': ('price', 'promo'), 'data.static': ('region',)}
HEADS = {
  'student_t': {'data.scaling': 'window', 'data.log': True},
  'negative_binomial': {'data.scaling': 'counts'},
}
SAMPLING = forecast_lib.Sampling(samples=60, seed=3)


def make_frame(head):
  frame = series.with_covariates(series.frame())
  if head == 'negative_binomial':
    rng = np.random.default_rng(0)
    frame['y'] = rng.poisson(4.0, len(frame))
  return frame


@pytest.fixture(scope='module', params=HEADS, name='made')
def _made(request, tmp_path_factory):
  """(a model of a head, its frame, what is known of 12 hours)."""
  head = request.param
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  frame = make_frame(head)
  frame.to_csv(path, index=False)
  changes = HEADS[head] | KNOWN | {'task.head': head}
  model = model_lib.Model(series.bundle(path, **changes))
  return model, frame, series.future(frame, 12)


def one(frame, name='s1'):
  return frame[frame.unique_id == name].reset_index(drop=True)


def chances(model, states, drawn):
  """The distribution functions of the next readings, made continuous."""
  numbers_PxO = np.array([state.numbers_OxH[:, 0] for state in states])
  if model.bundle.config.task.head == 'student_t':
    loc, scale, freedom = numbers_PxO.T
    return stats.t.cdf(np.log(drawn), freedom, loc, scale)
  mean, dispersion = numbers_PxO.T
  shape = 1 / dispersion, 1 / (1 + dispersion * mean)
  spread = np.random.default_rng(1).random(len(drawn))
  below = stats.nbinom.cdf(drawn - 1, *shape)
  return below + spread * stats.nbinom.pmf(drawn, *shape)


def test_a_path_is_of_the_distributions_of_the_stream_that_reads_it(made):
  """The probability integral transform of each draw is uniform."""
  model, frame, future = made
  own, ahead = one(frame), one(future)
  state = model.begin(own, ahead)
  forecast = model.forecaster.forecast(state, 3, sampling=SAMPLING)
  assert forecast.paths_PxH.shape == (60, 3)
  states, found = [state] * 60, []
  for drawn in forecast.paths_PxH.T:
    found.append(chances(model, states, drawn))
    states = model.forecaster.observe_all(states, drawn.tolist())
  for uniform in (*found, np.concatenate(found)):
    assert stats.kstest(uniform, 'uniform').pvalue > 1e-4
  # Steps are drawn apart from each other.
  assert abs(np.corrcoef(found)[np.triu_indices(3, 1)]).max() < 0.5
  assert len({state.numbers_OxH.tobytes() for state in states}) > 20


def test_the_same_seed_draws_the_same_paths(made):
  model, frame, future = made
  options = {'future': future, 'horizon': 7, 'seed': 5}
  wanted = model.forecast(frame, samples=6, **options)
  names = [f'path{n}' for n in range(1, 7)]
  assert [*wanted][-6:] == names and len(wanted) == 21
  for name in ('s0', 's2'):
    rows = wanted[wanted.unique_id == name].reset_index(drop=True)
    again = model.forecast(
      one(frame, name), samples=6, **(options | {'future': one(future, name)})
    )
    pd.testing.assert_frame_equal(again, rows, check_exact=True)
  fewer = model.forecast(frame, samples=2, **options)
  assert fewer[names[:2]].equals(wanted[names[:2]])
  other = model.forecast(frame, samples=6, **(options | {'seed': 2**40 + 5}))
  assert not other[names].equals(wanted[names])
  assert not np.array_equal(*(one(wanted, x)[names] for x in ('s0', 's1')))


def test_quantiles_are_those_of_the_paths(made):
  """Which have readings of the series' kind, beyond the horizon trained."""
  model, frame, future = made
  levels = (0.02, 0.5, 0.9)
  made = model.forecast(
    one(frame),
    future=one(future),
    horizon=12,
    samples=101,
    quantiles=levels,
  )
  paths = made.filter(like='path').to_numpy()
  assert paths.shape == (12, 101) and made.ds[11] == '2026-01-03 23:00'
  ordered = np.sort(paths, 1)
  for level, place in zip(levels, (2, 50, 90), strict=True):
    assert np.array_equal(made[f'q{level:g}'], ordered[:, place])
  assert (paths >= 0).all()
  if model.bundle.config.data.scaling == 'counts':
    assert np.array_equal(paths, np.round(paths))


def test_what_can_t_be_drawn_is_refused(made, tmp_path):
  model, frame, future = made
  own, ahead = one(frame), one(future)
  for options, message in (
    ({'horizon': 13, 'samples': 2}, "no 'price' at 2026-01-04 00:00"),
    ({'horizon': 12}, 'horizon=12: .* or draw paths'),
    ({'samples': -1}, 'samples=-1: give 1 to 10,000'),
    ({'samples': 2, 'seed': -1}, 'seed=-1'),
    ({'samples': 2, 'horizon': 0}, 'horizon=0: give 1'),
    ({'samples': 2, 'quantiles': (0.5, 1.0)}, 'between 0 and 1'),
  ):
    with pytest.raises(errors.InputError, match=message):
      model.forecast(own, future=ahead, **options)
  path = tmp_path / 't.csv'
  frame.to_csv(path, index=False)
  for changes, message in (
    ({}, "samples=2: task.head='quantiles' has no distribution"),
    (
      {'task.head': 'student_t', 'data.observed': ('rain',)},
      r"samples=2: .*data.observed=\('rain',\)",
    ),
  ):
    other = model_lib.Model(series.bundle(path, **changes))
    with pytest.raises(errors.InputError, match=message):
      other.forecast(own, samples=2)
