"""Covariates over HTTP have the bits of the Python API."""

import json

import numpy as np
import pandas as pd
import pytest

from rnn_jax.inference import model as model_lib
from tests.faults import bodies
from tests.serving.http import served
from tests.serving.http import test_series
from tests.support import series

HISTORY = 30  # readings that begin a stream
KNOWN = 'price', 'promo'
STATIC = {'size': 10.0, 'region': 'south'}  # of s1


@pytest.fixture(scope='module', name='rows')
def _rows():
  """Series s1 with what is known of the readings after it."""
  frame = series.with_covariates(series.frame())
  frame.loc[frame.index % 60 == HISTORY - 1, 'y'] = 9.0
  rows = pd.concat([frame, series.future(frame)], ignore_index=True)
  rows = rows[rows.unique_id == 's1'].reset_index(drop=True)
  later = rows.index >= HISTORY
  rows.loc[later, 'price'] = rows.price.fillna(5.0)[later]
  return rows


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  series.with_covariates(series.frame()).to_csv(path, index=False)
  return model_lib.Model(series.bundle(path, **series.COVARIATES))


def numbers(column):
  return [None if np.isnan(x) else float(x) for x in column]


def times(rows):
  return [x.isoformat() for x in rows.ds]


def known(rows):
  return {name: numbers(rows[name]) for name in KNOWN}


def history(rows, count=HISTORY, ahead=5):
  """A request with the first readings, and what is known of later times."""
  own = rows[:count]
  return {
    'times': times(own),
    'readings': numbers(own.y),
    'known': known(rows[: count + ahead]),
    'observed': {'rain': numbers(own.rain)},
    'static': STATIC,
  }


def begin(model, rows, count=HISTORY):
  ahead = rows[count : count + 5].drop(columns=['y', 'rain'])
  return model.begin(rows[:count], ahead)


def reading(rows, place, **changes):
  """A request with the reading of a place, and what it comes with."""
  own, ahead = rows[place : place + 1], rows[place + 5 : place + 6]
  return {
    'time': times(own)[0],
    'reading': numbers(own.y)[0],
    'observed': {'rain': numbers(own.rain)[0]},
    'known': known(ahead),
    'known_times': times(ahead),
  } | changes


def test_a_forecast_has_the_bits_of_python(model, rows, tmp_path):
  with (
    test_series.serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    given = {'id': 's1', **history(rows)}
    response = client.post('/v1/forecast', json={'series': [given]})
    assert response.status_code == 200, response.text
    (answer,) = response.json()['data']
    state = begin(model, rows)
    test_series.check_same(answer, model.forecaster.forecast(state))
    # With times, what is known may be given in other rows.
    given['known'] = known(rows[3 : HISTORY + 2])
    given['known_times'] = times(rows[3 : HISTORY + 2])
    response = client.post(
      '/v1/forecast', json={'series': [given], 'horizon': 2}
    )
    own = rows[:HISTORY].copy()
    own.loc[:2, [*KNOWN]] = np.nan
    ahead = rows[HISTORY : HISTORY + 2].drop(columns=['y', 'rain'])
    state = model.begin(own, ahead)
    (answer,) = response.json()['data']
    test_series.check_same(answer, model.forecaster.forecast(state, 2))
    card = client.get('/v1/models').json()['data'][0]
    assert card['covariates'] == {
      'known': [*KNOWN],
      'observed': ['rain'],
      'static': ['size', 'region'],
    }


def test_a_stream_has_the_bits_of_python_and_survives(model, rows, tmp_path):
  """Reading by reading, asked twice; then from another server's store."""
  path, state = '/v1/streams/s1', begin(model, rows)
  last = len(rows) - 5
  for first, stop in ((HISTORY, 45), (45, last)):
    with (
      test_series.serving(model, tmp_path) as service,
      served.client(service) as client,
    ):
      if first == HISTORY:
        answer = client.put(path, json=history(rows))
        assert answer.status_code == 200, answer.text
        test_series.check_same(answer.json(), model.forecaster.forecast(state))
      test_series.check_same(
        client.get(path).json(), model.forecaster.forecast(state)
      )
      for place in range(first, stop):
        ahead = rows[place + 5 : place + 6]
        state, forecast = model.observe(
          state,
          rows.y[place],
          known=ahead[[*KNOWN]].to_dict('records')[0],
          observed={'rain': rows.rain[place]},
        )
        for added in (1, 0):
          answer = client.post(path, json=reading(rows, place)).json()
          assert answer.get('added') == added, answer
          test_series.check_same(answer, forecast)
  with (
    test_series.serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    # Several at once, and the known numbers overlap.
    client.put(path, json=history(rows))
    many = {
      'readings': numbers(rows.y[HISTORY:last]),
      'times': times(rows[HISTORY:last]),
      'observed': {'rain': numbers(rows.rain[HISTORY:last])},
      'known': known(rows[HISTORY:]),
      'known_times': times(rows[HISTORY:]),
    }
    answer = client.post(path, json=many).json()
    assert answer['added'] == last - HISTORY
    test_series.check_same(answer, forecast)


PLACE = HISTORY
REFUSED = (
  ({'known': None, 'known_times': None}, 400, None, "no 'price' at"),
  ({'observed': None}, 400, 'observed', "data.observed=('rain',)"),
  ({'observed': {'rain': 1.0, 'wind': 2.0}}, 400, 'observed', 'rain'),
  ({'observed': {'rain': [1.0, 2.0]}}, 400, 'observed', 'give 1 of each'),
  ({'observed': {'rain': 1e300}}, 400, None, 'a covariate is 1e+300'),
  ({'known': {'price': [1.0]}}, 400, 'known', 'a number of each'),
  ({'known': {'price': [None], 'promo': [1]}}, 400, 'known', 'finite'),
  ({'known_times': None}, 400, None, 'known_times is missing'),
  ({'known': None}, 400, 'known_times', 'give both'),
  ({'known_times': ['2026-01-09']}, 400, 'known_times', 'give each time'),
  ({'known_times': ['2026-01-01T07:30']}, 400, 'known_times', 'every h'),
  ({'known_times': ['2026-01-02T06:00']}, 409, 'known_times', 'other numbers'),
  ({'static': STATIC}, 400, 'static', 'no such field'),
)


def test_what_a_stream_cannot_read_changes_nothing(model, rows, tmp_path):
  path = '/v1/streams/s1'
  with (
    test_series.serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    first = client.put(path, json=history(rows)).json()
    for changes, status, param, words in REFUSED:
      response = client.post(path, json=reading(rows, PLACE, **changes))
      error = response.json()['error']
      assert (response.status_code, error['param']) == (status, param), error
      assert words in error['message'] and '\n' not in error['message']
    again = client.get(path).json()
    assert all(again[key] == first[key] for key in ('count', 'quantiles'))


@pytest.mark.parametrize(
  ('changes', 'param', 'words'),
  (
    ({'known': None}, 'known', "data.known=('price', 'promo')"),
    ({'observed': {}}, 'observed', "data.observed=('rain',)"),
    ({'static': {'size': 1.0}}, 'static', "('size', 'region')"),
    ({'static': {'size': 1e300, 'region': ''}}, None, 'a covariate is 1e+300'),
    ({'static': {'size': [], 'region': ''}}, 'static.size', ''),
    ({'known': {'price': [1.0], 'promo': [1.0]}}, 'known', 'give 30 of each'),
  ),
)
def test_histories_that_lack_covariates_are_refused(
  model, rows, tmp_path, changes, param, words
):
  with (
    test_series.serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    response = client.put('/v1/streams/x', json=history(rows) | changes)
    error = response.json()['error']
    assert (response.status_code, error['param']) == (400, param), error
    assert words in error['message']
    short = history(rows, ahead=4)
    response = client.put('/v1/streams/x', json=short)
    assert "no 'price' at 2026-01-02 10:00" in response.text
    assert client.get('/v1/streams/x').status_code == 404
    answer = client.put('/v1/streams/x', json=short | {'horizon': 4})
    assert len(answer.json()['times']) == 4
    assert len(client.get('/v1/streams/x').json()['times']) == 4


def test_hostile_covariates_are_refused_by_their_field(model, rows, tmp_path):
  """Each field, and a column of each, at each value."""
  path, kind = '/v1/streams/s1', {'Content-Type': 'application/json'}
  routes = (
    ('PUT', '/v1/streams/other', history(rows)),
    ('POST', path, reading(rows, PLACE)),
  )
  statuses = []
  with (
    test_series.serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    first = client.put(path, json=history(rows)).json()
    for method, route, form in routes:
      for field in {'known', 'known_times', 'observed', 'static'} & {*form}:
        for value in bodies.JUNK:
          given = [value]
          if isinstance(form[field], dict):
            column = next(iter(form[field]))
            given.append(form[field] | {column: value})
          for each in given:
            content = json.dumps(form | {field: each})
            response = client.request(
              method, route, content=content, headers=kind
            )
            statuses.append(response.status_code)
            if response.status_code == 200:
              client.put(path, json=history(rows))  # a number: begin again
            else:
              error = response.json()['error']
              assert response.status_code == 400, (field, each, error)
              assert '\n' not in error['message'], error
    again = client.get(path).json()
    assert all(again[key] == first[key] for key in ('count', 'quantiles'))
  assert statuses.count(400) > 300
