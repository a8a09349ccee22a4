"""A stream is the series read from its start; what is asked is checked."""

import csv
import json

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import rnn_jax
from rnn_jax import errors
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.evaluation.forecasting import baselines
from rnn_jax.inference import model as model_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import launchers
from tests.support import series
from tests.support import shared


@pytest.fixture(scope='module', name='path')
def _path(tmp_path_factory):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  series.frame().to_csv(path, index=False)
  return path


@pytest.fixture(scope='module', name='bundle')
def _bundle(path):
  return series.bundle(path)


@pytest.fixture(scope='module', name='model')
def _model(bundle):
  return model_lib.Model(bundle)


def one(name='s1', length=None):
  frame = series.frame()
  return frame[frame.unique_id == name].iloc[:length]


def same(a, b):
  """Whether two streams are the same, bit for bit."""
  return a.numbers_OxH.tobytes() == b.numbers_OxH.tobytes() and all(
    x.tobytes() == y.tobytes()
    for x, y in zip(
      jax.tree.leaves(jax.device_get(a.carry)),
      jax.tree.leaves(jax.device_get(b.carry)),
      strict=True,
    )
  )


@pytest.mark.parametrize(
  'changes',
  (
    {'data.scaling': 'window'},
    {'data.scaling': 'standard', 'task.head': 'student_t'},
    {'task.anchor': 'seasonal_ar', 'data.window': 24},
  ),
)
def test_a_stream_is_the_series_read_from_its_start(path, changes):
  model = model_lib.Model(series.bundle(path, **changes))
  readings = one().y.to_numpy()

  @settings(max_examples=8, deadline=None)
  @given(st.lists(st.integers(1, 59), min_size=1, max_size=4, unique=True))
  def check(cuts):
    whole = model.begin(one())
    state = model.begin(one(length=cuts[0]))
    kept = state
    for reading in readings[cuts[0] :]:
      state, forecast = model.observe(state, reading)
    assert same(whole, state)
    table = model.forecast(one())
    wanted = forecast.quantiles_HxQ
    assert np.array_equal(table[['q0.1', 'q0.5', 'q0.9']], wanted)
    assert same(kept, model.begin(one(length=cuts[0])))  # it wasn't changed

  check()


def test_the_stream_s_forecast_is_that_of_training(bundle, model):
  """The row in parallel, by the model that training runs."""
  task = bundle_lib.make_task(bundle.config, bundle.tokenizer)
  forecaster = model.forecaster
  state = model.begin(one())
  scaled = np.float32(state.scale.apply(one().y.to_numpy()))
  padded = np.concatenate([np.full(7, np.nan, np.float32), scaled])
  windows = np.lib.stride_tricks.sliding_window_view(padded, 8)
  grid = forecaster.frequency
  calendar = grid.calendar(state.start, np.arange(1, 61))
  run, begin = jax.jit(task.model.apply), task.init_state(1)
  given = begin, windows[None], calendar[None]
  _, made = jax.device_get(run({'params': bundle.params}, *given))
  wanted = np.stack([np.float64(x[0, -1]) for x in made.numbers], -1)
  wanted *= made.scale_BxLxH[0, -1][:, None]
  wanted += made.loc_BxLxH[0, -1][:, None]
  got = forecaster.forecast(state).quantiles_HxQ / state.scale.scale
  np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_series_does_not_depend_on_the_others_nor_on_its_order(model):
  together = model.forecast(series.frame())
  for name in ('s0', 's2'):
    own = model.forecast(one(name))
    rows = together[together.unique_id == name].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, rows, check_exact=True)
  assert len(together) == 15
  assert together.ds[0] == '2026-01-03 12:00'


@pytest.mark.parametrize('anchor', ('season', 'seasonal_ar'))
def test_many_series_have_the_bits_of_each_by_itself(path, anchor):
  changes = {'task.anchor': anchor, 'data.window': 24}
  model = model_lib.Model(series.bundle(path, **changes))
  rng = np.random.default_rng(5)
  frame = series.frame(19, 70, seed=8)
  lengths = dict(
    zip(frame.unique_id.unique(), rng.integers(1, 70, 19), strict=True)
  )
  place = frame.groupby('unique_id').cumcount()
  short = frame[(place < frame.unique_id.map(lengths)) | (place == 0)]
  short = short.assign(y=short.y.fillna(1.0))
  together = model.begin_all(short)
  alone = [model.begin(own) for _, own in short.groupby('unique_id')]
  alone = {stream.name: stream for stream in alone}
  assert len(together) == 19
  for stream in together:
    assert same(stream, alone[stream.name])

  readings = rng.normal(10, size=(3, 19))
  readings[1, ::4] = np.nan
  for row in readings:
    together, made = model.observe_all(together, row)
    for n, stream in enumerate(together):
      name = stream.name
      alone[name], wanted = model.observe(alone[name], row[n])
      assert same(stream, alone[name])
      assert made[n].times == wanted.times
      assert np.array_equal(made[n].quantiles_HxQ, wanted.quantiles_HxQ)
  with pytest.raises(errors.InputError, match='2 readings.*there are 1'):
    model.observe_all(together[:1], [1.0, 2.0])


@pytest.mark.parametrize('scaling', ('window', 'mean_abs', 'none'))
def test_forecasts_have_the_series_scale(path, scaling):
  """Of an unknown name: 1000 times the readings, 1000 times the forecast."""
  model = model_lib.Model(series.bundle(path, **{'data.scaling': scaling}))
  frame = one().assign(unique_id='new')
  small = model.forecast(frame)
  large = model.forecast(frame.assign(y=1000 * frame.y))
  names = ['q0.1', 'q0.5', 'q0.9']
  if scaling == 'none':
    assert not np.allclose(large[names], 1000 * small[names], rtol=1e-2)
    return
  np.testing.assert_allclose(
    large[names], 1000 * small[names], rtol=1e-3, atol=1
  )


def test_logarithms_are_inverted(path):
  model = model_lib.Model(series.bundle(path, **{'data.log': True}))
  made = model.forecast(one())
  assert (made[['q0.1', 'q0.5', 'q0.9']] > 0).all(None)
  with pytest.raises(errors.InputError, match='give a positive number'):
    model.observe(model.begin(one()), 0.0)


def test_a_reading_without_a_logarithm_is_refused_everywhere(path, tmp_path):
  """Of a series whose scale the run knows, too."""
  model = model_lib.Model(series.bundle(path, **{'data.log': True}))
  frame = one().reset_index(drop=True)
  states = model.begin_all(frame)
  frame.loc[3, 'y'] = -2.0
  for call in (
    model.forecast,
    model.begin,
    model.begin_all,
    model.anomalies,
    model.anomaly_threshold,
  ):
    with pytest.raises(errors.InputError, match="frame:3: .*'s1' has -2"):
      call(frame)
  frame.to_csv(tmp_path / 'bad.csv', index=False)
  with pytest.raises(errors.InputError, match=r'bad\.csv:5: .*data.log=False'):
    model.forecaster.read_file(str(tmp_path / 'bad.csv'), '--input')
  own = panel_lib.Series('s1', 0, np.array([[1.0], [-2.0]]))
  with pytest.raises(errors.InputError, match="'s1' has the reading -2"):
    model.forecaster.begin_all([own])
  with pytest.raises(errors.InputError, match='reading=-1.0: .* a positive'):
    model.observe_all(states * 2, [3.0, -1.0])


def test_missing_readings_are_read(model):
  state = model.begin(one())
  gap, forecast = model.observe(state, float('nan'))
  assert gap.count == 61 and np.isfinite(forecast.quantiles_HxQ).all()
  with pytest.raises(errors.InputError, match='a finite number, or nan'):
    model.observe(state, float('inf'))
  with pytest.raises(errors.InputError, match='give a number'):
    model.observe(state, 'high')


@pytest.mark.parametrize('value', (0.0, -7.0, 1e9))
def test_a_constant_series_has_ordered_finite_quantiles(model, value):
  table = model.forecast(one().assign(y=value))
  quantiles = table.filter(like='q0').to_numpy()
  assert np.isfinite(quantiles).all()
  assert (np.diff(quantiles, axis=1) >= 0).all()


@pytest.mark.parametrize(
  ('options', 'message'),
  (
    ({'horizon': 6}, 'horizon=6: this model forecasts 5 readings'),
    ({'horizon': 0}, 'horizon=0'),
    ({'quantiles': (0.01, 0.5)}, 'has learned .*student_t'),
    ({'quantiles': (0.9, 0.1)}, 'ascending'),
  ),
)
def test_what_the_model_lacks_is_refused(model, options, message):
  with pytest.raises(errors.InputError, match=message):
    model.forecast(one(), **options)


def test_frames_without_a_place_in_the_run_are_refused(model):
  with pytest.raises(errors.InputError, match='no dates, and the run'):
    model.forecast(np.arange(20.0))
  with pytest.raises(errors.InputError, match='one for each stream'):
    model.begin(series.frame())
  with pytest.raises(errors.InputError, match='has no reading'):
    model.begin(one().assign(y=np.nan))
  text = model_lib.Model(bundles.make(bundles.raw_published()))
  with pytest.raises(errors.InputError, match='forecasts no series'):
    text.forecast(one())


@pytest.mark.slow
def test_the_command_trains_evaluates_and_forecasts(tmp_path):
  """With covariates."""
  path, ahead = tmp_path / 'series.csv', tmp_path / 'future.csv'
  frame = series.with_covariates(series.frame())
  frame.to_csv(path, index=False)
  series.future(frame).to_csv(ahead, index=False)
  with shared.programs():
    config = tmp_path / 'config.py'
    config.write_text(
      'from tests.support import series\n'
      f'def get_config():\n  return series.raw_config({str(path)!r}, '
      f'**series.COVARIATES)\n'
    )
    run = f'--workdir={tmp_path}/run'
    code, out, err = launchers.run('train', f'--config={config}', run)
    assert code == 0, err
    assert 'data.frequency' in out and 'trained: all steps' in out
    code, out, err = launchers.run('evaluate', run)
  assert code == 0, err
  scores = json.loads(
    (tmp_path / 'run/evaluation/test/scores.json').read_text()
  )
  names = [row['name'] for row in scores['forecasters']]
  assert names == ['model', *baselines.BASELINES]
  assert all(f'| {name} ' in out for name in names)
  lines = (tmp_path / 'run/evaluation/test/predictions.jsonl').read_text()
  rows = [json.loads(line) for line in lines.splitlines()]
  assert [row['origin'] for row in rows] == [55] * 3
  y = series.frame().y.to_numpy()[55:60]
  got = np.array(rows[0]['readings'], float)
  np.testing.assert_array_equal(got, y)
  out = tmp_path / 'forecast.csv'
  flags = (
    f'--input={path}',
    f'--future={ahead}',
    f'--output={out}',
    '--quantiles=0.1,0.9',
    '--horizon=4',
    f'--plot={tmp_path}/fan.png',
  )
  code, _, err = launchers.run('forecast', run, *flags)
  assert code == 0, err
  with open(out, encoding='utf-8') as file:
    table = [*csv.DictReader(file)]
  assert [*table[0]] == ['unique_id', 'ds', 'q0.1', 'q0.9'] and len(table) == 12
  model = rnn_jax.load(tmp_path / 'run')
  wanted = model.forecast(
    frame, future=series.future(frame), horizon=4, quantiles=(0.1, 0.9)
  )
  got = np.array([float(row['q0.9']) for row in table])
  assert np.array_equal(got, wanted['q0.9'])
  assert (tmp_path / 'fan.png').stat().st_size > 5000
  code, _, err = launchers.run(
    'forecast', run, f'--input={path}', '--quantiles=high'
  )
  assert code == 1 and '--quantiles' in err
  code, _, err = launchers.run('predict', run, f'--input={path}')
  assert code == 1 and 'launch.forecast' in err
  code, _, err = launchers.run('forecast', run, f'--input={path}')
  assert code == 1 and "has no 'price' at 2026-01-03 12:00" in err
  code, _, err = launchers.run(
    'forecast', run, f'--input={path}', '--samples=9', '--seed=1'
  )
  assert code == 1 and "samples=9: task.head='quantiles' has no" in err
