"""Several targets: read together, forecast together, each in its own units."""

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from rnn_jax import errors
from rnn_jax.evaluation import forecasts
from rnn_jax.evaluation import run as run_lib
from rnn_jax.evaluation.forecasting import baselines
from rnn_jax.inference import fan_chart
from rnn_jax.inference import model as model_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from tests.support import series

QUANTILES = ['q0.1', 'q0.5', 'q0.9']
HEADS = 'quantiles', 'student_t', 'point'


@pytest.fixture(scope='module', name='frame')
def _frame():
  return series.with_targets(series.with_covariates(series.frame()))


@pytest.fixture(scope='module', name='path')
def _path(frame, tmp_path_factory):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  frame.to_csv(path, index=False)
  return path


@pytest.fixture(scope='module', name='model')
def _model(path):
  return model_lib.Model(series.bundle(path, **series.TARGETS))


def one(frame, name='s1'):
  return frame[frame.unique_id == name].reset_index(drop=True)


@pytest.mark.parametrize('head', HEADS)
def test_a_stream_is_the_series_read_from_its_start(path, frame, head):
  """With covariates, and by lists of readings."""
  changes = series.TARGETS | {
    'task.head': head,
    'data.known': ('promo',),
    'data.observed': ('rain',),
    'data.static': ('region',),
  }
  model = model_lib.Model(series.bundle(path, **changes))
  own = one(frame)
  ahead = one(series.future(frame)).drop(columns='price')
  promo = np.concatenate([own.promo, ahead.promo])
  cut = 50
  own.loc[[cut - 1, 59], 'y'] = 9.0  # a series with known columns ends with one
  wanted = model.forecast(own, future=ahead)
  assert [*wanted] == ['unique_id', 'ds', 'target', *QUANTILES]
  assert wanted.target.tolist() == ['y'] * 5 + ['z'] * 5
  assert wanted.ds[0] == wanted.ds[5] == '2026-01-03 12:00'

  times = own[['unique_id', 'ds', 'promo']]
  state = kept = model.begin(own[:cut], times[cut : cut + 5])
  for n in range(cut, 60):
    state, forecast = model.observe(
      state,
      own[['y', 'z']].to_numpy()[n],
      known={'promo': promo[n + 5]},
      observed={'rain': own.rain[n]},
    )
  assert np.array_equal(forecast.quantiles_HxQ, wanted[QUANTILES])
  assert kept.count == cut
  assert np.array_equal(forecast.of('z').quantiles_HxQ, wanted[QUANTILES][5:])
  short = model.forecast(own, future=ahead, horizon=2)
  rows = wanted.iloc[[0, 1, 5, 6]].reset_index(drop=True)
  pd.testing.assert_frame_equal(short, rows, check_exact=True)


def test_series_have_the_bits_that_each_has_by_itself(model, frame):
  together = model.forecast(frame)
  for name in ('s0', 's2'):
    own = model.forecast(one(frame, name))
    rows = one(together, name)
    pd.testing.assert_frame_equal(own, rows, check_exact=True)


def test_each_target_is_forecast_from_all_in_its_own_units(model, frame):
  """And a scale of 1000 changes nothing but the units."""
  own = one(frame).assign(unique_id='new')
  wanted = model.forecast(own)
  other = own.copy()
  other.loc[55, 'z'] += 5
  changed = model.forecast(other)[QUANTILES] != wanted[QUANTILES]
  assert changed.all(None)
  large = model.forecast(own.assign(z=1000 * own.z))
  for target, factor in (('y', 1), ('z', 1000)):
    rows = wanted.target == target
    np.testing.assert_allclose(
      large[QUANTILES][rows], factor * wanted[QUANTILES][rows], rtol=2e-3
    )


def test_no_reading_after_the_cut_changes_a_forecast(path, model, frame):
  """By a bit, of the split that is held out, and of any target."""
  raw = series.raw_config(path, **series.TARGETS)
  config, corpus = series.corpus(raw)
  params = model.bundle.params

  def made(table):
    table.to_csv(path, index=False)
    _, corpus = series.corpus(raw)
    run = evaluate.Run(config, corpus, None, params, 0)
    rows = forecasts.predict(run, 'test', 1)
    return [(row['target'], row['point'], row['quantiles']) for row in rows]

  before = made(frame)
  assert [row[0] for row in before] == ['y', 'z']

  @settings(max_examples=4, deadline=None)
  @given(st.floats(-1e6, 1e6), st.integers(55, 59), st.sampled_from('yz'))
  def check(value, place, column):
    other = frame.copy()
    other.loc[place, column] = value
    assert made(other) == before

  check()
  other = frame.copy()
  other.loc[54, 'z'] += 1
  for old, new in zip(before, made(other), strict=True):
    assert old[1] != new[1]
  frame.to_csv(path, index=False)


def test_the_loss_is_the_mean_over_targets(path):
  """By the equation, in float64, of a model that is its anchor."""
  config, corpus = series.corpus(series.raw_config(path, **series.TARGETS))
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = jax.jit(task.init_parameters)(jax.random.key(0))
  steps = corpus.examples(config.data, 'train').read(1, 9, 40)
  W, H = series.WINDOW, series.HORIZON
  L = len(steps.weights_L)
  batch = task.blank_batch(1, L)._replace(
    readings_BxLxW=steps.readings_LxW[None],
    calendar_BxLxF=steps.calendar_LxF[None],
    future_BxLxH=steps.future_LxH[None],
    weights_BxL=steps.weights_L[None],
  )
  _, (sums, _) = jax.jit(task.loss)(params, task.init_state(1), batch)
  seen = np.float64(steps.readings_LxW).reshape(-1, 2, W)
  future = np.float64(steps.future_LxH).reshape(-1, 2, H)
  loc = np.nanmean(seen, -1, keepdims=True)
  scale = np.nanmean(np.abs(seen - loc), -1, keepdims=True)
  scale += 0.01 * np.nanmean(np.abs(seen), -1, keepdims=True)
  last = pd.DataFrame(seen.reshape(-1, W)).ffill(axis=1).to_numpy()[:, -1]
  last = last.reshape(-1, 2, 1)
  anchor = seen[..., [2, 3, 4, 5, 6]]
  anchor = np.where(np.isnan(anchor), last, anchor)
  errors_LxTxH = np.abs(future - anchor) / scale
  means_L = np.nanmean(errors_LxTxH.reshape(L, -1), 1)
  weights_L = np.mean(~np.isnan(future.reshape(L, -1)), 1)
  assert np.isnan(future).any() and np.isnan(seen).any()
  np.testing.assert_allclose(steps.weights_L, weights_L, rtol=1e-6)
  got = float(sums['error']) / float(sums['weight'])
  assert got == pytest.approx(
    np.sum(weights_L * means_L) / weights_L.sum(), 1e-4
  )


def test_an_evaluation_scores_each_target(path, model, tmp_path):
  config, corpus = series.corpus(series.raw_config(path, **series.TARGETS))
  run = evaluate.Run(config, corpus, None, model.bundle.params, 0)
  rows = forecasts.predict(run, 'test', 0)
  assert [(x['name'], x['target']) for x in rows[:3]] == [
    ('s0', 'y'),
    ('s0', 'z'),
    ('s1', 'y'),
  ]
  scores = forecasts.score_run(run, rows, None)
  names = ['model', *baselines.BASELINES]
  rows = scores['forecasters']
  assert [row['name'] for row in rows] == names
  for row in rows:
    each = row['groups']
    assert [*each] == ['y', 'z']
    mean = np.mean([own['mase'] for own in each.values()])
    assert row['mase'] == pytest.approx(mean, 1e-12)
  text = run_lib.table(scores)
  assert text.count('seasonal naive ') >= 3 and '\nz\n' in text


def test_other_forms_of_a_table_are_read_alike(frame, tmp_path):
  """One series, without dates: a frame, Parquet, .npz, an array."""
  own = one(frame)[['y', 'z']]
  own.to_csv(tmp_path / 'own.csv', index=False)
  own.to_parquet(tmp_path / 'own.parquet')
  np.savez(tmp_path / 'own.npz', own=own.to_numpy())
  for name in ('own.csv', 'own.npz'):
    model = model_lib.Model(series.bundle(tmp_path / name, **series.TARGETS))
    wanted = model.forecast(own)[QUANTILES]
    assert np.array_equal(wanted, model.forecast(own.to_numpy())[QUANTILES])
    stacked = model.forecast(own.to_numpy()[None])
    assert np.array_equal(wanted, stacked[QUANTILES])
    assert stacked.target[5] == 'z'
    for file in ('own.csv', 'own.parquet', 'own.npz'):
      panel = model.forecaster.read_file(str(tmp_path / file), '--input')
      (made,) = model.forecaster.forecasts(panel.series)
      assert made.name == 'own' and len(made.times) == 10
    fan_chart.draw(panel, [made], tmp_path / 'fan.png')
    assert (tmp_path / 'fan.png').stat().st_size > 5000
    with pytest.raises(errors.InputError, match='readings x 2 targets'):
      model.forecast(own.y.to_numpy()[None])


def test_what_several_targets_lack_is_refused(model, frame, path, tmp_path):
  own = one(frame)
  state = model.begin(own)
  for reading in (1.0, [1.0], [1.0, 2.0, 3.0], [1.0, 'high']):
    with pytest.raises(errors.InputError, match=r"2 numbers, of \('y', 'z'\)"):
      model.observe(state, reading)
  with pytest.raises(errors.InputError, match='finite'):
    model.observe(state, [1.0, float('inf')])
  with pytest.raises(errors.InputError, match="targets='z': the frame has"):
    model.forecast(own.drop(columns='z'))
  with pytest.raises(errors.InputError, match='of one column'):
    model.anomalies(own)
  with pytest.raises(errors.InputError, match="give one of \\('y', 'z'\\)"):
    model.forecaster.forecast(state).of('x')
  student = {'task.head': 'student_t'} | series.TARGETS
  other = model_lib.Model(series.bundle(path, **student))
  with pytest.raises(errors.InputError, match='are not drawn'):
    other.forecast(own, samples=3)
  for changes, message in (
    ({'data.targets': ('y', 'y')}, 'give each column once'),
    ({'data.targets': ('y', 'x')}, "data.targets='x'"),
    (series.TARGETS | {'data.table': 'columns'}, 'columns of a long table'),
    (series.TARGETS | {'data.known': ('z',)}, 'also in data.targets'),
  ):
    with pytest.raises(errors.InputError, match=message):
      series.corpus(series.raw_config(path, **changes))
