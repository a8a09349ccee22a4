"""Forecasting: no leak, no dependence on names, the layouts, training."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.data.series import documents as series_lib
from rnn_jax.data.series import examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import series as model_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import draws
from tests.support import series
from tests.support import shared


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


@pytest.fixture(name='path')
def _path(tmp_path):
  path = tmp_path / 'series.csv'
  series.frame().to_csv(path, index=False)
  return path


def forecasts_of(task, params, readings, calendar, covariates=None):
  """The forecasts of rows by themselves."""
  run, state = jax.jit(task.model.apply), task.init_state(len(readings))
  given = readings, calendar, None, covariates
  return jax.device_get(run({'params': params}, state, *given)[1])


def test_steps_are_the_equation_s(path):
  """Windows, futures and weights of a row, against plain slices."""
  config, corpus = series.corpus(series.raw_config(path))
  made = corpus.examples(config.data, 'train', 0)
  W, H = config.data.window, config.data.horizon
  given = series_lib.content(corpus.documents['train'].read(1))
  values_N = given.values_NxT[:, 0]
  scale = np.nanmean(np.abs(values_N))
  y = np.concatenate([np.full(W, np.nan), values_N, np.full(H, np.nan)])
  y = np.float32(y / scale)
  steps = made.read(1, 7, 20)
  for n, t in enumerate(range(7, 19)):
    np.testing.assert_array_equal(steps.readings_LxW[n], y[t + 1 : t + 1 + W])
    future = y[W + t + 1 : W + t + 1 + H]
    np.testing.assert_array_equal(steps.future_LxH[n], future)
    assert steps.weights_L[n] == np.float32(np.mean(~np.isnan(future)))
  assert not made.read(1, 0, 3).weights_L[0]  # half a season wasn't seen yet


def test_parts_follow_each_other_and_only_the_last_horizon_is_forecast(path):
  config, corpus = series.corpus(series.raw_config(path))
  whole = {
    name: [series_lib.content(x.read(n)) for n in range(len(x))]
    for name, x in corpus.documents.items()
  }
  for train, validation, test in zip(*whole.values(), strict=True):
    assert (train.begin, validation.begin, test.begin) == (0, 50, 55)
    assert [len(x.values_NxT) for x in (train, validation, test)] == [
      50,
      55,
      60,
    ]
  for split, place in (('validation', 49), ('test', 54)):
    made = corpus.examples(config.data.heldout(config.evaluate), split)
    steps = made.read(0)
    assert np.flatnonzero(steps.weights_L).tolist() == [
      len(steps.weights_L) - 1
    ]
    assert made.lengths[0] == 33
    assert examples.origins(whole[split][0], 5)[0] == place


@pytest.mark.parametrize(  # counts need a head of their own
  'scaling', [name for name in tokenizer_lib.SCALINGS if name != 'counts']
)
def test_nothing_after_the_cut_changes_a_forecast(path, scaling):
  """By a bit: of the held-out splits, whatever their readings are."""
  raw = series.raw_config(path, **{'data.scaling': scaling})
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  forecast = jax.jit(
    lambda *given: task.model.apply({'params': params}, *given)[1]
  )
  data = config.data.heldout(config.evaluate)
  state = jax.tree.map(np.asarray, task.init_state(1))

  def made(frame):
    frame.to_csv(path, index=False)
    _, other = series.corpus(raw)
    steps = other.examples(data, 'test').read(0)
    return jax.device_get(
      forecast(state, steps.readings_LxW[None], steps.calendar_LxF[None])
    )

  @settings(max_examples=4, deadline=None)
  @given(st.floats(-1e6, 1e6), st.integers(55, 59))
  def check(value, place):
    frame = series.frame()
    before = made(frame)
    frame.loc[place, 'y'] = value  # of the first series' test horizon
    after = made(frame)
    for old, new in zip(
      jax.tree.leaves(before), jax.tree.leaves(after), strict=True
    ):
      assert old.tobytes() == new.tobytes()

  check()


def test_a_step_sees_no_later_reading(path):
  """By a gradient: a step's forecast has none of later steps' windows."""
  config, corpus = series.corpus(series.raw_config(path))
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  steps = corpus.examples(config.data, 'train').read(0, 10, 30)
  readings = np.nan_to_num(steps.readings_LxW)[None]

  def at(readings, t):
    _, made = task.model.apply(
      {'params': params}, task.init_state(1), readings, steps.calendar_LxF[None]
    )
    return sum(x[0, t].sum() for x in made.numbers)

  gradient = jax.jit(jax.grad(at), static_argnums=1)(readings, 6)
  gradient = np.asarray(gradient)
  assert np.abs(gradient[0, :7]).max(-1).all()
  assert not gradient[0, 7:].any()


def of_steps(steps):
  """The covariates of a row's steps, for the model."""
  return model_lib.Covariates(*(np.asarray(x)[None] for x in steps[4:]))


def test_nothing_after_the_cut_but_what_is_known_changes_a_forecast(path):
  """By a bit: of readings and observed covariates, whatever they are."""
  raw = series.raw_config(path, **series.COVARIATES)
  frame = series.with_covariates(series.frame())
  frame.to_csv(path, index=False)
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  forecast = jax.jit(
    lambda *given: task.model.apply(
      {'params': params}, *given[:-1], None, given[-1]
    )[1]
  )
  data = config.data.heldout(config.evaluate)
  state = jax.tree.map(np.asarray, task.init_state(1))

  def made(frame):
    frame.to_csv(path, index=False)
    _, other = series.corpus(raw)
    steps = other.examples(data, 'test').read(0)
    given = steps.readings_LxW[None], steps.calendar_LxF[None]
    return [
      each[:, -1].tobytes()
      for each in jax.device_get(forecast(state, *given, of_steps(steps)))[0]
    ]

  before = made(frame)

  @settings(max_examples=4, deadline=None)
  @given(
    st.floats(-1e6, 1e6), st.integers(55, 59), st.sampled_from(['y', 'rain'])
  )
  def check(value, place, column):
    other = frame.copy()
    other.loc[place, column] = value  # of the first series' test horizon
    assert made(other) == before

  check()
  frame.loc[57, 'price'] += 1  # two readings later: it is known
  after = made(frame)
  assert after != before
  assert [x[:8] for x in after] == [x[:8] for x in before]  # float32, h = 1, 2


def test_a_forecast_reads_what_is_known_of_its_own_time(path):
  """By a gradient, of one step, so that no recurrence takes part."""
  series.with_covariates(series.frame()).to_csv(path, index=False)
  config, corpus = series.corpus(series.raw_config(path, **series.COVARIATES))
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  steps = corpus.examples(config.data, 'train').read(0, 20, 22)
  given = of_steps(steps)
  readings = np.nan_to_num(steps.readings_LxW)[None], steps.calendar_LxF[None]

  def at(known):
    _, made = task.model.apply(
      {'params': params},
      task.init_state(1),
      *readings,
      covariates=given._replace(known_BxLxHxK=known),
    )
    return made.numbers[1][0, 0]

  jacobian = jax.jit(jax.jacobian(at))(np.nan_to_num(given.known_BxLxHxK))
  of_own = np.abs(np.asarray(jacobian)[:, 0, 0]).max(-1)  # HxH
  assert np.diag(of_own).all() and not of_own[~np.eye(5, dtype=bool)].any()


def test_permuted_names_have_the_same_loss(path):
  raw = series.raw_config(path)
  losses = []
  for names in (['s0', 's1', 's2'], ['s2', 's0', 's1']):
    frame = series.frame()
    frame['unique_id'] = frame['unique_id'].map(
      dict(zip(['s0', 's1', 's2'], names, strict=True))
    )
    frame.to_csv(path, index=False)
    config, corpus = series.corpus(raw)
    task = bundle_lib.make_task(config, corpus.tokenizer)
    params = draws.parameters(task.init_parameters)
    run = evaluate.Run(config, corpus, programs(config, corpus), params, 0)
    losses.append(run.evaluate('train')['loss'])
  assert losses[0] == losses[1]


def programs(config, corpus):
  from rnn_jax.training import programs as programs_lib

  return programs_lib.from_config(config, corpus.tokenizer)


@pytest.mark.parametrize('layout', ('buckets', 'packed', 'padded', 'stream'))
def test_a_layout_does_not_change_the_loss(path, layout):
  """All cuts of a row; a packed row's or a stream's series don't mix."""
  series.with_covariates(series.frame()).to_csv(path, index=False)
  raw = series.raw_config(path, **series.COVARIATES)
  raw.data.layout = layout
  raw.data.length = 64
  if layout == 'stream':
    raw.data.carry_state = True
    raw.data.length = 16
    raw.evaluate.update(length=16, segment_tokens=64)
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  run = evaluate.Run(config, corpus, programs(config, corpus), params, 0)
  got = run.evaluate('train')
  whole = []
  made = corpus.examples(dataclasses.replace(config.data, length=64), 'train')
  for n in range(3):
    steps = made.read(n)
    rows = steps.readings_LxW[None], steps.calendar_LxF[None]
    forecasts = forecasts_of(task, params, *rows, of_steps(steps))
    whole.append(oracle(forecasts, steps))
  loss, weight = np.sum(whole, 0)
  assert got['loss'] == pytest.approx(loss / weight, rel=2e-5)


def oracle(forecasts, steps):
  """(the sum of losses, of weights) of a row in float64, by its equation."""
  loc, scale = (np.float64(x[0]) for x in forecasts[1:])
  y = (steps.future_LxH - loc) / scale
  losses = [
    2 * np.maximum(level * (y - q), (level - 1) * (y - q))
    for level, q in zip(
      (0.1, 0.5, 0.9),
      (np.float64(x[0]) for x in forecasts.numbers),
      strict=True,
    )
  ]
  weights_L = steps.weights_L
  chosen = weights_L > 0
  means_L = np.nanmean(np.mean(losses, 0)[chosen], 1)
  return np.sum(weights_L[chosen] * means_L), np.sum(weights_L)


def test_training_has_a_loss_of_one_step_in_so_many(path):
  """Of the first or the second one and every third, as the key draws."""
  raw = series.raw_config(path, **{'task.loss_every': 3, 'model.dropout': 0.0})
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  steps = corpus.examples(config.data, 'train').read(0, 20, 41)
  made = forecasts_of(
    task, params, steps.readings_LxW[None], steps.calendar_LxF[None]
  )
  batch = task.blank_batch(1, len(steps.weights_L))._replace(
    readings_BxLxW=steps.readings_LxW[None],
    calendar_BxLxF=steps.calendar_LxF[None],
    future_BxLxH=steps.future_LxH[None],
    weights_BxL=steps.weights_L[None],
  )
  run = jax.jit(lambda key: task.loss(params, task.init_state(1), batch, key))
  wanted = {}
  for first in (0, 1):
    weights_L = np.zeros_like(steps.weights_L)
    weights_L[first::3] = steps.weights_L[first::3]
    wanted[first] = oracle(made, steps._replace(weights_L=weights_L))
  drawn = set()
  for seed in range(8):
    loss, (sums, _) = jax.device_get(run(jax.random.key(seed)))
    first = min(wanted, key=lambda n: abs(wanted[n][0] - loss))
    assert (loss, sums['weight']) == pytest.approx(wanted[first], rel=2e-5)
    drawn.add(first)
  assert drawn == {0, 1}
  _, (sums, _) = jax.device_get(run(None))
  assert sums['weight'] == pytest.approx(steps.weights_L.sum())


def test_normalized_windows_are_those_of_their_equation():
  rng = np.random.default_rng(0)
  x = rng.normal(3, 2, (2, 5, 8)).astype(np.float32)
  x[0, 1, :3] = np.nan
  run = jax.jit(model_lib.normalized, static_argnums=1)
  z, loc, scale = jax.device_get(run(x, True))
  wide = np.float64(x)
  mean = np.nanmean(wide, -1)
  spread = np.nanmean(np.abs(wide - mean[..., None]), -1)
  wanted = spread + 0.01 * np.nanmean(np.abs(wide), -1)
  np.testing.assert_allclose(loc, mean, rtol=1e-5)
  np.testing.assert_allclose(scale, wanted, rtol=1e-5)
  back = z * scale[..., None] + loc[..., None]
  np.testing.assert_allclose(back[~np.isnan(x)], x[~np.isnan(x)], rtol=1e-5)


@pytest.mark.parametrize('anchor', ('season', 'last', 'none'))
def test_an_untrained_model_is_its_anchor(path, anchor):
  """Whatever its covariates are."""
  series.with_covariates(series.frame()).to_csv(path, index=False)
  changes = series.COVARIATES | {'task.anchor': anchor}
  raw = series.raw_config(path, **changes)
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = jax.jit(task.init_parameters)(jax.random.key(0))
  rng = np.random.default_rng(0)
  readings = rng.normal(5, 1, (1, 3, 8)).astype(np.float32)
  calendar = np.zeros((1, 3, config.data.widths[1]), np.float32)
  batch = task.blank_batch(1, 3)
  covariates = model_lib.Covariates(
    rng.normal(size=batch.known_BxLxHxK.shape),
    rng.normal(size=batch.inputs_BxLxC.shape),
    np.ones(batch.categories_BxLxS.shape, np.int32),
  )
  made = forecasts_of(task, params, readings, calendar, covariates)
  got = made.numbers[1] * made.scale_BxLxH + made.loc_BxLxH
  wanted = {
    'season': readings[..., [2, 3, 4, 5, 6]],
    'last': np.repeat(readings[..., -1:], 5, -1),
    'none': np.repeat(readings.mean(-1, keepdims=True), 5, -1),
  }[anchor]
  np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize('unit', ('season', 'series'))
def test_a_loss_has_its_unit(path, unit):
  """And `mse` and `mae` are of scaled readings, against plain NumPy."""
  raw = series.raw_config(path, **{'task.unit': unit})
  raw.data.length = 64
  config, corpus = series.corpus(raw)
  task = bundle_lib.make_task(config, corpus.tokenizer)
  params = draws.parameters(task.init_parameters)
  run = evaluate.Run(config, corpus, programs(config, corpus), params, 0)
  got = run.evaluate('train')
  made = corpus.examples(config.data, 'train')
  totals = np.zeros(5)
  for n in range(3):
    steps = made.read(n)
    rows = steps.readings_LxW[None], steps.calendar_LxF[None]
    forecasts = forecasts_of(task, params, *rows)
    totals += oracle_of_unit(forecasts, steps, unit)
  wanted = totals[:4] / totals[4]
  for name, value in zip(('loss', 'error', 'mse', 'mae'), wanted, strict=True):
    assert got[name] == pytest.approx(value, rel=5e-5), name


def oracle_of_unit(forecasts, steps, unit):
  """Sums of loss, error, mse, mae and weights of a row, by their equations."""
  loc, scale = (np.float64(x[0])[:, :1] for x in forecasts[1:])
  numbers = [np.float64(x[0]) * scale + loc for x in forecasts.numbers]
  y = np.float64(steps.future_LxH)
  size = np.ones_like(loc)
  if unit == 'season':
    x = np.float64(steps.readings_LxW)
    apart = np.abs(x[:, series.SEASON :] - x[:, : -series.SEASON])
    none = np.isnan(apart).all(1)
    apart[none] = 0
    mean = np.nanmean(apart, 1)[:, None] + 0.05 * scale
    size = np.where(none[:, None], scale, mean)
  losses = [
    2 * np.maximum(level * (y - q), (level - 1) * (y - q)) / size
    for level, q in zip((0.1, 0.5, 0.9), numbers, strict=True)
  ]
  error = np.abs(y - numbers[1])
  each = np.mean(losses, 0), error / size, error**2, error
  chosen, weights_L = steps.weights_L > 0, steps.weights_L
  sums = [np.sum(weights_L[chosen] * np.nanmean(x[chosen], 1)) for x in each]
  return np.array([*sums, np.sum(weights_L)])


def test_held_out_forecasts_may_begin_at_each_reading(path):
  """Those whose whole horizon is there; others forecast a horizon apart."""
  raw = series.raw_config(path, **{'data.held_out': (1, 2)})
  for every, wanted in (
    (0, [49, 54]),
    (1, [49, 50, 51, 52, 53, 54]),
    (4, [49, 53]),
  ):
    raw.data.origins_every = every
    config, corpus = series.corpus(raw)
    made = corpus.examples(config.data, 'test')
    steps = made.read(0)
    last = wanted[-1] + 1
    chosen = np.flatnonzero(steps.weights_L) + last - len(steps.weights_L)
    assert chosen.tolist() == wanted


@pytest.mark.slow
def test_a_resumed_run_is_the_whole_one(path, tmp_path):
  def params(workdir, *stops):
    for steps in (*stops, 4):
      raw = series.raw_config(path, **{'train.steps': steps})
      loop.train(config_lib.parse(raw), tmp_path / workdir)
    return bundle_lib.read(tmp_path / workdir, 'latest').params

  whole, resumed = params('whole'), params('resumed', 2)
  assert jax.tree.all(jax.tree.map(np.array_equal, whole, resumed))


def test_batches_resume_at_any_number(path):
  config, corpus = series.corpus(series.raw_config(path))

  def batches(first):
    iterator = pipeline.training_batches(corpus, config)
    iterator.set_state({'batch': first})
    made = [next(iterator) for _ in range(5 - first)]
    iterator.close()
    return made

  whole, resumed = batches(0), batches(3)
  for a, b in zip(whole[3:], resumed, strict=True):
    for x, y in zip(a, b, strict=True):
      assert (x is None and y is None) or np.array_equal(x, y, equal_nan=True)


@pytest.mark.parametrize('anchor', ('season', 'seasonal_ar'))
def test_a_window_is_checked_when_the_season_is_known(path, anchor):
  given = {'data.season': 0, 'data.window': 3, 'task.anchor': anchor}
  raw = series.raw_config(path, **given)
  config_lib.parse(raw)
  with pytest.raises(errors.InputError, match=r'data\.window=3: task\.anchor'):
    series.corpus(raw)


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'task.quantiles': (0.5, 0.1)}, 'task.quantiles=.*ascending'),
    ({'task.quantiles': (0.0, 0.1)}, 'task.quantiles=.*between 0 and 1'),
    ({'data.window': 3}, "data.window=3: task.anchor='season' sees 6"),
    (
      {'task.anchor': 'seasonal_ar', 'data.horizon': 7},
      "data.window=8: task.anchor='seasonal_ar' sees 24 readings",
    ),
    (
      {'task.anchor': 'seasonal_ar', 'data.season': 1},
      "task.anchor='seasonal_ar': data.season=1",
    ),
    ({'data.horizon': 60}, r'data.held_out=\(1, 1\): none of 3 series'),
    ({'data.frequency': 'hourly'}, "data.frequency='hourly'"),
    ({'data.tokenizer': 'bpe'}, 'data.tokenizer'),
    ({'model.bidirectional': True}, 'model.bidirectional'),
    ({'task.unit': 'season', 'task.head': 'student_t'}, "task.unit='season'"),
    ({'task.unit': 'season', 'data.window': 6}, 'data.window=6: task.unit'),
    ({'task.head': 'negative_binomial'}, "data.scaling='window'.*'counts'"),
  ),
)
def test_what_contradicts_is_refused(path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    series.corpus(series.raw_config(path, **changes))


def test_texts_and_series_are_told_apart(path):
  raw = config_lib.default(source='series')
  raw.data.path = str(path)
  with pytest.raises(errors.InputError, match="'forecasting' and 'series'"):
    config_lib.parse(raw)
  raw = config_lib.default(task='forecasting')
  with pytest.raises(errors.InputError, match="'forecasting' and 'series'"):
    config_lib.parse(raw)
