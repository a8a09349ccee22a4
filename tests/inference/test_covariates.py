"""Forecasts with covariates: streams, no leak, and what must be known."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from rnn_jax import errors
from rnn_jax.data.series import panel as panel_lib
from rnn_jax.inference import model as model_lib
from tests.support import series

QUANTILES = ['q0.1', 'q0.5', 'q0.9']


@pytest.fixture(scope='module', name='frame')
def _frame():
  return series.with_covariates(series.frame())


@pytest.fixture(scope='module', name='future')
def _future(frame):
  return series.future(frame)


@pytest.fixture(scope='module', name='model')
def _model(frame, tmp_path_factory):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  frame.to_csv(path, index=False)
  return model_lib.Model(series.bundle(path, **series.COVARIATES))


def one(frame, name='s1'):
  return frame[frame.unique_id == name].reset_index(drop=True)


def test_rows_without_a_reading_are_a_table_of_the_future(
  model, frame, future, tmp_path
):
  wanted = model.forecast(frame, future=future)
  rows = pd.concat([frame, future.assign(rain=9.0, region='', size=np.nan)])
  rows = rows.sort_values(['unique_id', 'ds'])
  pd.testing.assert_frame_equal(model.forecast(rows), wanted, check_exact=True)
  rows.to_csv(tmp_path / 'rows.csv', index=False)
  panel = model.forecaster.read_file(str(tmp_path / 'rows.csv'), '--input')
  made = model.forecaster.forecasts(panel.series)
  got = np.concatenate([each.quantiles_HxQ for each in made])
  np.testing.assert_allclose(got, wanted[QUANTILES], rtol=1e-6)
  assert not np.allclose(
    wanted[QUANTILES],
    model.forecast(frame, future=future.assign(price=9.0))[QUANTILES],
  )


def test_a_series_has_the_bits_that_it_has_among_others(model, frame, future):
  together = model.forecast(frame, future=future)
  for name in ('s0', 's2'):
    own = model.forecast(one(frame, name), future=one(future, name))
    rows = together[together.unique_id == name].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, rows, check_exact=True)


def test_a_stream_is_the_series_read_from_its_start(model, frame, future):
  """Bit for bit, with what is known coming reading by reading."""
  rows = pd.concat([one(frame), one(future)], ignore_index=True)
  rows['price'] = rows.price.fillna(5.0)
  y, rain = rows.y, rows.rain
  known = rows[['price', 'promo']].to_dict('records')
  wanted = model.forecast(rows)[QUANTILES]

  @settings(max_examples=6, deadline=None)
  @given(st.integers(1, 59).filter(lambda cut: not np.isnan(y[cut - 1])))
  def check(cut):
    ahead = rows[cut : cut + 5].drop(columns=['y', 'rain'])
    state = begun = model.begin(rows[:cut], ahead)
    for n in range(cut, 60):
      state, forecast = model.observe(
        state, y[n], known=known[n + 5], observed={'rain': rain[n]}
      )
    assert np.array_equal(forecast.quantiles_HxQ, wanted)
    assert begun.count == cut
    # What is known may come at once, too.
    late = model.begin(rows[:cut])
    columns = {x: rows[x][cut : cut + 6].tolist() for x in ('price', 'promo')}
    options = {'known': columns, 'observed': {'rain': rain[cut]}}
    _, once = model.observe(late, y[cut], **options)
    options['known'] = known[cut + 5]
    _, wise = model.observe(begun, y[cut], **options)
    assert np.array_equal(once.quantiles_HxQ, wise.quantiles_HxQ)

  check()


def test_nothing_after_the_cut_but_what_is_known_changes_a_forecast(
  model, frame, future
):
  """By a bit: of readings and observed covariates, whatever they are."""
  cut = frame.groupby('unique_id').cumcount() < 40
  later = frame[~cut].groupby('unique_id').head(5)
  later = later.assign(price=later.price.fillna(5.0))
  wanted = model.forecast(frame[cut], future=later)

  @settings(max_examples=5, deadline=None)
  @given(
    st.floats(allow_nan=True, allow_infinity=False),
    st.integers(0, 14),
    st.sampled_from(['y', 'rain']),
  )
  def check(value, place, column):
    other = later.copy()
    other.iloc[place, other.columns.get_loc(column)] = value
    made = model.forecast(frame[cut], future=other)
    pd.testing.assert_frame_equal(made, wanted, check_exact=True)

  check()
  later.iloc[2, later.columns.get_loc('price')] += 1
  changed = (
    model.forecast(frame[cut], future=later)[QUANTILES] != wanted[QUANTILES]
  )
  assert np.flatnonzero(changed.any(axis=1)).tolist() == [2]


def test_a_gap_in_the_history_is_read_as_missing(model, frame, future):
  own = one(frame).drop(index=[20, 21])
  made = model.forecast(own, future=one(future))
  assert np.isfinite(made[QUANTILES]).all(None)


def test_new_categories_and_series_are_forecast(model, frame, future):
  """An unknown category is as a missing one."""
  made = [
    model.forecast(
      one(frame).assign(unique_id='new', region=region),
      future=one(future).assign(unique_id='new'),
    )[QUANTILES]
    for region in ('east', '', 'south')
  ]
  assert made[0].equals(made[1]) and not made[0].equals(made[2])


def test_what_must_be_known_is_asked_for(model, frame, future):
  own, ahead = one(frame), one(future)

  def refused(message, *given, **options):
    with pytest.raises(errors.InputError, match=message):
      model.forecast(*given, **options)

  first = "series 's1' has no 'price' at 2026-01-03 12:00.*--future, future="
  refused(first, own)
  refused("no 'price' at 2026-01-03 15:00", own, future=ahead[:3])
  made = model.forecast(own, future=ahead[:3], horizon=3)
  wanted = model.forecast(own, future=ahead)[:3]
  pd.testing.assert_frame_equal(made, wanted, check_exact=True)
  refused("no 'price' at 2026-01-03 13:00", own, future=ahead.drop(index=1))
  refused("no 'promo' at 2026", own, future=ahead.assign(promo=np.nan))
  refused(
    "known='promo': the future has the columns",
    own,
    future=ahead.drop(columns='promo'),
  )
  refused("series 's2' is not in the frame", own, future=one(future, 's2'))
  refused('give what follows', own, future=own)
  refused("observed='rain'", own.drop(columns='rain'), future=ahead)
  refused("static='size'", own.drop(columns='size'), future=ahead)
  nameless = ahead.drop(columns='unique_id')
  refused('has 3 series: add the column', frame, future=nameless)
  assert model.forecast(own, future=nameless).equals(
    model.forecast(own, future=ahead)
  )


def test_a_stream_asks_for_what_it_lacks(model, frame, future):
  state = model.begin(one(frame), one(future))
  row, rain = {'price': 1.0, 'promo': 0}, {'rain': float('nan')}
  model.observe(state, 3.0, known=row, observed=rain)
  for options, message in (
    ({'observed': rain}, "'s1' has no 'price' at 2026-01-03 17:00"),
    ({'known': row}, r"observed=\[\]: this run has data.observed=\('rain',\)"),
    ({'known': {'price': 1}, 'observed': rain}, 'a number of each'),
    ({'known': row | {'cost': 1}, 'observed': rain}, 'a number of each'),
    (
      {'known': row | {'price': np.nan}, 'observed': rain},
      'give finite numbers',
    ),
    ({'known': row | {'price': 'low'}, 'observed': rain}, 'give numbers'),
    (
      {'known': row | {'price': [1, 2]}, 'observed': rain},
      'as many of each column',
    ),
    ({'known': row, 'observed': {'rain': [1, 2]}}, 'give 1 of each column'),
  ):
    with pytest.raises(errors.InputError, match=message):
      model.observe(state, 3.0, **options)
  with pytest.raises(errors.InputError, match='known=.*there are 1 states'):
    model.observe_all([state], [3.0], known=[row, row])


def test_a_series_without_covariates_is_refused(model):
  """As servers have them."""
  own = panel_lib.Series('a', 0, np.ones((9, 1)))
  with pytest.raises(errors.InputError, match="'a' has no cov.*'rain', 'size'"):
    model.forecaster.begin(own)


def test_a_run_without_covariates_takes_none(tmp_path):
  frame = series.frame()
  frame.to_csv(tmp_path / 't.csv', index=False)
  model = model_lib.Model(series.bundle(tmp_path / 't.csv'))
  with pytest.raises(errors.InputError, match='nothing is known ahead'):
    model.forecast(frame, future=frame)
  state = model.begin(one(frame))
  with pytest.raises(errors.InputError, match='no data.known: leave it out'):
    model.observe(state, 1.0, known={'price': 1})


def test_observed_covariates_need_no_future(frame, tmp_path):
  """Nor do static ones."""
  frame.to_csv(tmp_path / 't.csv', index=False)
  changes = series.COVARIATES | {'data.known': ()}
  model = model_lib.Model(series.bundle(tmp_path / 't.csv', **changes))
  own = one(frame)
  wanted = model.forecast(own)[QUANTILES]
  state = model.begin(own[:58])
  for n in (58, 59):
    state, forecast = model.observe(
      state, own.y[n], observed={'rain': own.rain[n]}
    )
  assert np.array_equal(forecast.quantiles_HxQ, wanted)
  assert len(state.covariates.moving_MxC) == 6  # a season


def test_counts_are_forecast_as_counts(tmp_path):
  rng = np.random.default_rng(0)
  frame = series.frame().assign(y=rng.poisson(3.0, 180))
  frame.to_csv(tmp_path / 't.csv', index=False)
  changes = {'task.head': 'negative_binomial', 'data.scaling': 'counts'}
  model = model_lib.Model(series.bundle(tmp_path / 't.csv', **changes))
  made = model.forecast(frame, quantiles=(0.05, 0.5, 0.99))
  quantiles = made[['q0.05', 'q0.5', 'q0.99']].to_numpy()
  assert (quantiles == np.round(quantiles)).all() and (quantiles >= 0).all()
  assert (np.diff(quantiles, axis=-1) >= 0).all()
  state = model.begin(one(frame))
  _, forecast = model.observe(state, 4)
  assert np.array_equal(forecast.point_H, np.round(forecast.point_H))
  for wrong in (2.5, -1):
    with pytest.raises(errors.InputError, match=f'reading={wrong}.*a count'):
      model.observe(state, wrong)
    with pytest.raises(errors.InputError, match=f'has {wrong}.*no count'):
      model.forecast(frame.assign(y=wrong))
