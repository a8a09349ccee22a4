"""Scores are tail probabilities; a threshold has the rate that was asked."""

import csv
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import rnn_jax
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.inference import anomalies
from rnn_jax.inference import model as model_lib
from rnn_jax.models import forecast_heads
from rnn_jax.training import loop
from tests.support import launchers
from tests.support import series
from tests.support import shared

LEVELS = 0.05, 0.25, 0.5, 0.75, 0.95
RATE = 0.02
LENGTH = 700


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def clean(seed, length=LENGTH):
  """Hourly series with a season and normal noise, none of it missing."""
  frame = series.frame(2, length, seed)
  frame['y'] = frame.groupby('unique_id').y.transform(
    lambda y: y.interpolate(limit_direction='both')
  )
  return frame


@pytest.fixture(
  scope='module', name='trained', params=('quantiles', 'student_t')
)
def _trained(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp(request.param)
  clean(0, 300).to_csv(folder / 'series.csv', index=False)
  raw = series.raw_config(folder / 'series.csv', **{'task.head': request.param})
  raw.data.update(window=12, length=64)
  raw.task.quantiles = LEVELS
  raw.optimizer.learning_rate = 1e-2
  raw.train.update(steps=40, checkpoint_every=40, log_every=40)
  raw.evaluate.every = 40
  loop.train(config_lib.parse(raw), folder / 'run')
  return folder / 'run'


def test_scores_of_a_student_t_are_its_two_tails():
  head = forecast_heads.Head('student_t', LEVELS)
  rng = np.random.default_rng(0)
  numbers = np.stack(
    [rng.normal(size=9), rng.uniform(0.5, 2, 9), rng.uniform(2, 9, 9)], 1
  )
  y = 5 * rng.normal(size=9)
  p = [
    2 * min(stats.t.cdf(x, nu, m, s), stats.t.sf(x, nu, m, s))
    for x, (m, s, nu) in zip(y, numbers, strict=True)
  ]
  got = anomalies.scores(head, numbers, y)
  np.testing.assert_allclose(got, -np.log(p), rtol=1e-9)


def test_scores_of_quantiles_meet_them_and_have_exponential_tails():
  head = forecast_heads.Head('quantiles', LEVELS)
  q = np.array([[-3.0, -1.0, 0.5, 1.0, 4.0]])

  def score(y):
    return float(anomalies.scores(head, q, np.array([y]))[0])

  for level, y in zip(LEVELS, q[0], strict=True):
    assert score(y) == pytest.approx(-math.log(2 * min(level, 1 - level)))
  assert score(0.75) == pytest.approx(-math.log(2 * (1 - 0.625)))  # linear
  above = 3 / math.log(0.25 / 0.05)  # from 1 at 0.75 to 4 at 0.95
  below = 2 / math.log(0.25 / 0.05)
  assert score(4 + 2 * above) == pytest.approx(-math.log(0.1) + 2)
  assert score(-3 - 2 * below) == pytest.approx(-math.log(0.1) + 2)
  assert math.isnan(score(np.nan))
  flat = anomalies.scores(head, np.zeros((2, 5)), np.array([0.0, 1.0]))
  assert not np.isnan(flat).any() and flat[1] > 100


def test_a_threshold_is_that_of_split_conformal_prediction():
  scores = [np.array([np.nan, *range(1, 50)]), np.arange(50.0, 100)]
  assert anomalies.threshold(scores, 0.01) == 99
  assert anomalies.threshold(scores, 0.1) == 90
  with pytest.raises(errors.InputError, match='999 held-out .* there are 99:'):
    anomalies.threshold(scores, 0.001)
  with pytest.raises(errors.InputError, match='99 or|0.01 or'):
    anomalies.threshold([np.arange(98.0)], 0.01)
  for rate in (0, 1.0, math.nan):
    with pytest.raises(errors.InputError, match='rate between 0 and 1'):
      anomalies.threshold(scores, rate)


def planted():
  """A clean table with two spikes and a shift; the places of these."""
  frame = clean(3, 200)
  own = np.flatnonzero(frame.unique_id == 's1')
  spikes = own[[90, 150]]
  frame.loc[spikes, 'y'] += [12, -12]
  shifted = np.flatnonzero(frame.unique_id == 's0')[120:]
  frame.loc[shifted, 'y'] += 12
  return frame, [*spikes, shifted[0]]


def test_anomalies_are_flagged_at_the_rate_that_was_asked_for(trained):
  """Within four standard deviations, of the threshold's chance too."""
  model = rnn_jax.load(trained)
  limit = model.anomaly_threshold(clean(1), false_alarms=RATE)
  table = model.anomalies(clean(2), threshold=limit)
  assert [*table] == ['unique_id', 'ds', 'y', 'score', 'anomaly']
  known = table[~table.score.isna()]
  assert len(known) > 2 * LENGTH - 20
  spread = math.sqrt(2 * RATE * (1 - RATE) / len(known))
  assert abs(known.anomaly.mean() - RATE) < 4 * spread
  frame, places = planted()
  found = model.anomalies(frame, threshold=limit)
  assert found.anomaly[places].all()
  assert found.score[places].min() > known.score.median() + 3


def test_a_stream_has_the_scores_of_its_series(trained):
  model = rnn_jax.load(trained)
  frame, _ = planted()
  own = frame[frame.unique_id == 's1'].reset_index(drop=True)
  own.loc[70, 'y'] = np.nan
  table = model.anomalies(own)
  assert 'anomaly' not in table
  state = model.begin(own.iloc[:60])
  for n in range(60, 100):
    score = model.anomaly_score(state, own.y[n])
    np.testing.assert_allclose(score, table.score[n], rtol=2e-3, atol=2e-3)
    state, _ = model.observe(state, own.y[n])
  assert np.isnan(table.score[70]) and np.isnan(table.score[0])
  assert not np.isnan(table.score[12])


def test_the_command_writes_a_row_for_each_reading(trained, tmp_path):
  frame, places = planted()
  frame.to_csv(tmp_path / 'new.csv', index=False)
  clean(1).to_csv(tmp_path / 'clean.csv', index=False)
  flags = f'--workdir={trained}', f'--input={tmp_path / "new.csv"}'
  held_out = f'--held_out={tmp_path / "clean.csv"}'
  out = tmp_path / 'scored.csv'
  code, _, err = launchers.run(
    'anomalies', *flags, held_out, '--false_alarms=0.01', f'--output={out}'
  )
  assert code == 0, err
  assert '400 readings' in err and ' anomalies' in err
  with open(out) as opened:
    rows = [*csv.DictReader(opened)]
  assert [row['ds'] for row in rows] == [
    f'{time:%Y-%m-%d %H:%M}' for time in pd.to_datetime(frame.ds)
  ]
  assert all(rows[n]['anomaly'] == 'true' for n in places)
  # By the held-out part of the run's own data: two horizons of two series.
  code, made, err = launchers.run('anomalies', *flags, '--false_alarms=0.2')
  assert code == 0 and len(made.splitlines()) == len(frame), err
  code, _, err = launchers.run('anomalies', *flags)
  assert code == 1 and '--false_alarms=0.001: 999 held-out readings' in err
  assert 'there are 20' in err


def test_a_point_has_no_distribution(tmp_path):
  head = forecast_heads.Head('point', LEVELS)
  with pytest.raises(errors.InputError, match="task.head='point'"):
    anomalies.check_head(head)
  with pytest.raises(errors.InputError, match='two levels'):
    anomalies.check_head(forecast_heads.Head('quantiles', (0.5,)))


def test_covariates_are_read(tmp_path):
  """A known number counts from its own time on, an observed one after it."""
  frame = series.with_covariates(series.frame())
  frame.to_csv(tmp_path / 'series.csv', index=False)
  bundle = series.bundle(tmp_path / 'series.csv', **series.COVARIATES)
  model = model_lib.Model(bundle)
  own = frame[frame.unique_id == 's1'].reset_index(drop=True)
  own['price'] = own.price.fillna(5.0)
  own.loc[39, 'y'] = 9.0
  wanted = model.anomalies(own).score

  for column, first in (('price', 30), ('rain', 31)):
    other = own.copy()
    other.loc[30, column] += 1
    made = model.anomalies(other).score
    np.testing.assert_array_equal(made[:first], wanted[:first])
    assert made[first] != wanted[first]

  columns = ['unique_id', 'ds', 'price', 'promo']
  state = model.begin(own[:40], own[columns][40:45])
  for n in range(40, 50):
    score = model.anomaly_score(state, own.y[n])
    np.testing.assert_allclose(score, wanted[n], rtol=2e-3, atol=2e-3)
    known = own[['price', 'promo']].to_dict('records')[n + 5]
    state, _ = model.observe(
      state, own.y[n], known=known, observed={'rain': own.rain[n]}
    )
  with pytest.raises(errors.InputError, match="'s1' has no 'price' at"):
    model.anomaly_score(model.begin(own[:40]), 1.0)
  # The held-out readings of the run have its covariates, too.
  _, corpus = series.corpus(
    series.raw_config(tmp_path / 'series.csv', **series.COVARIATES)
  )
  found = model.detector.of_documents([corpus.documents['test']])
  whole = model.anomalies(frame[frame.unique_id == 's0']).score
  np.testing.assert_array_equal(found[0], whole[55:])


def test_series_scored_together_have_the_scores_of_each(tmp_path):
  """Of any length, and beyond one call's readings."""
  frame = series.with_covariates(series.frame(19, 140))
  place = frame.groupby('unique_id').cumcount()
  number = frame.unique_id.str[1:].astype(int)
  frame = frame[place < 140 - 7 * number]
  frame.to_csv(tmp_path / 'series.csv', index=False)
  bundle = series.bundle(tmp_path / 'series.csv', **series.COVARIATES)
  model = model_lib.Model(bundle)
  together = model.anomalies(frame)
  for name, rows in together.groupby('unique_id'):
    own = model.anomalies(frame[frame.unique_id == name])
    np.testing.assert_array_equal(own.score, rows.score)
