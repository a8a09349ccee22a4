"""The routes of series of numbers, on a small model, in process."""

import collections
import contextlib
import json

import numpy as np
import pytest

from rnn_jax.inference import model as model_lib
from rnn_jax.serving import store as store_lib
from rnn_jax.serving import streams as streams_lib
from rnn_jax.serving.http import access_log
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import openapi
from rnn_jax.serving.http import service as service_lib
from tests.faults import bodies
from tests.serving.http import served
from tests.support import classifiers
from tests.support import series

HISTORY = 12  # readings that begin a stream


@pytest.fixture(scope='module', name='frame')
def _frame():
  return series.frame(3, 60)


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory, frame):
  path = tmp_path_factory.mktemp('series') / 'series.csv'
  frame.to_csv(path, index=False)
  return model_lib.Model(series.bundle(path))


@contextlib.contextmanager
def serving(model, folder, keys='', **limits):
  """A running service of a forecaster, with its streams in a folder."""
  with service_lib.Service(
    model,
    service_lib.Options(
      'load',
      service_lib.Limits(**limits),
      streams=streams_lib.Options(streams=4, queue=8, readings=500),
    ),
    store=store_lib.open_streams(str(folder)),
    keys=auth.parse(keys, 'test'),
  ).running(0.0) as running:
    yield running


@pytest.fixture(scope='module', name='service')
def _service(model, tmp_path_factory):
  folder = tmp_path_factory.mktemp('streams')
  with serving(model, folder, served.KEYS) as service:
    yield service


@pytest.fixture(name='client')
def _client(service):
  with served.client(service, served.ALICE) as client:
    yield client


def body(frame, name, first=0, last=None):
  """Times and readings of a series, as a request has them."""
  own = frame[frame.unique_id == name].iloc[first:last]
  readings = [None if np.isnan(y) else y for y in own.y]
  return {'times': [x.isoformat() for x in own.ds], 'readings': readings}


def check_same(answer, forecast):
  """Checks that an answer has the numbers of a forecast, bit for bit."""
  assert answer['times'] == forecast.times
  assert answer['point'] == forecast.point_H.tolist()
  levels = [f'{level:g}' for level in forecast.levels]
  assert list(answer['quantiles']) == levels
  columns = np.array([*answer['quantiles'].values()])
  assert np.array_equal(columns.T, forecast.quantiles_HxQ)


def test_forecasts_of_several_series(client, model, frame):
  names = 's0', 's2'
  given = [{'id': name, **body(frame, name)} for name in names]
  response = client.post('/v1/forecast', json={'series': given})
  assert response.status_code == 200, response.text
  answer = response.json()
  assert (answer['object'], answer['model']) == ('list', 'load')
  for name, row in zip(names, answer['data'], strict=True):
    state = model.begin(frame[frame.unique_id == name])
    assert row['id'] == name
    check_same(row, model.forecaster.forecast(state))
  short = {'series': given[:1], 'horizon': 2, 'quantiles': [0.2, 0.5]}
  (row,) = client.post('/v1/forecast', json=short).json()['data']
  assert len(row['times']) == 2 and [*row['quantiles']] == ['0.2', '0.5']


def test_a_stream_from_its_history_on(client, model, frame):
  path = '/v1/streams/hall:1'
  begin = body(frame, 's1', 0, HISTORY) | {'series': 's1'}
  response = client.put(path, json=begin)
  assert response.status_code == 200, response.text
  own = frame[frame.unique_id == 's1']
  state = model.begin(own.iloc[:HISTORY])
  check_same(response.json(), model.forecaster.forecast(state))
  values = own.y.to_numpy()
  for n in range(HISTORY, HISTORY + 3):
    given = body(frame, 's1', n, n + 1)
    one = {'reading': given['readings'][0], 'time': given['times'][0]}
    for added in (1, 0):  # an answer that was lost is asked for again
      answer = client.post(path, json=one).json()
      if added:
        state, forecast = model.observe(state, values[n])
      assert (answer['added'], answer['count']) == (added, n + 1)
      check_same(answer, forecast)
  answer = client.post(path, json={'reading': None, 'horizon': 1}).json()
  state, forecast = model.observe(state, float('nan'), horizon=1)
  check_same(answer, forecast)
  answer = client.post(path, json={'readings': [1.5, None, 2.5]}).json()
  for value in (1.5, float('nan'), 2.5):
    state, forecast = model.observe(state, value)
  check_same(answer, forecast)
  assert answer['added'] == 3

  last = client.get(path).json()
  check_same(last, forecast)
  assert last['series'] == 's1' and last['last'] == last['recent']['times'][-1]
  assert len(last['recent']['times']) == series.WINDOW
  np.testing.assert_allclose(
    np.array(last['recent']['readings'][-3:], float),
    [1.5, np.nan, 2.5],
    rtol=1e-6,
  )
  listed = client.get('/v1/streams').json()['data']
  assert [(x['id'], x['count']) for x in listed] == [('hall:1', 19)]
  assert client.delete(path).json()['deleted']
  assert client.get(path).status_code == 404
  assert client.get('/v1/streams').json()['data'] == []


def test_many_streams_in_one_request(client, model, frame):
  wanted = {}
  readings = {'s0': 11.5, 'gone': 1.0, 's2': None}
  for name, value in (('s0', 11.5), ('s2', np.nan)):
    client.put(f'/v1/streams/{name}', json=body(frame, name, 0, HISTORY))
    state = model.begin(frame[frame.unique_id == name].iloc[:HISTORY])
    _, wanted[name] = model.observe(state, value, horizon=3)
  (time,) = body(frame, 's0', HISTORY, HISTORY + 1)['times']
  given = {'readings': readings, 'time': time, 'horizon': 3}
  for added in (1, 0):  # the second time as after a lost answer
    answer = client.post('/v1/streams', json=given).json()
    first, gone, last = answer['data']
    assert gone['id'] == 'gone'
    assert gone['error']['code'] == 'stream_not_found'
    for row in (first, last):
      assert (row['added'], row['count']) == (added, HISTORY + 1)
      check_same(row, wanted[row['id']])
  for name in wanted:
    client.delete(f'/v1/streams/{name}')


@pytest.mark.parametrize(
  ('given', 'words'),
  (
    ({'readings': {}}, 'at least 1'),
    ({'readings': {'a b': 1.0}}, 'pattern'),
    ({'readings': {'a': 'high'}}, 'number'),
    ({'readings': {'a': 1.0}, 'times': ['x']}, 'no such field'),
    ({}, 'missing'),
  ),
)
def test_what_many_streams_cannot_read(client, given, words):
  response = client.post('/v1/streams', json=given)
  assert response.status_code == 400 and words in response.text


def test_a_stream_belongs_to_its_key(client, service, frame):
  path = '/v1/streams/mine'
  client.put(path, json=body(frame, 's0', 0, HISTORY))
  with served.client(service, served.BOB) as bob:
    for response in (
      bob.get(path),
      bob.post(path, json={'reading': 1.0}),
      bob.delete(path),
    ):
      assert response.status_code == 404
      assert response.json()['error']['code'] == 'stream_not_found'
    assert bob.get('/v1/streams').json()['data'] == []
  with served.client(service) as nobody:
    assert nobody.put(path, json={'readings': [1]}).status_code == 401
  assert client.delete(path).status_code == 200


@pytest.mark.parametrize(
  ('given', 'status', 'param', 'words'),
  (
    ({'reading': 1.0, 'time': '2026-01-01T12:30'}, 400, 'time', 'every h'),
    ({'reading': 1.0, 'time': '2026-01-01T02:00'}, 400, 'time', 'out of order'),
    ({'reading': 1.0, 'time': '2026-01-01T11:00'}, 409, 'time', 'another'),
    ({'reading': 1.0, 'time': 'noon'}, 400, 'time', '1678'),
    ({'reading': 'high'}, 400, 'reading', 'number'),
    ({'readings': []}, 400, 'readings', 'at least 1'),
    ({}, 400, 'reading', 'give a reading'),
    ({'reading': 1.0, 'readings': [1.0]}, 400, 'reading', 'give a reading'),
    ({'reading': 1.0, 'times': ['x']}, 400, 'times', 'together'),
    ({'readings': [1.0] * 501}, 400, 'readings', 'at most 500'),
    ({'reading': 1.0, 'horizon': 99}, 400, 'horizon', 'forecasts 5'),
    ({'reading': 1.0, 'quantiles': [0.01]}, 400, 'quantiles', 'learned'),
    ({'reading': 1.0, 'model': 'gpt'}, 404, 'model', 'load'),
    ({'reading': 1.0, 'temperature': 1}, 400, 'temperature', 'no such field'),
  ),
)
def test_what_a_stream_cannot_read(client, frame, given, status, param, words):
  path = '/v1/streams/same'
  if client.get(path).status_code == 404:
    client.put(path, json=body(frame, 's2', 0, HISTORY))
  response = client.post(path, json=given)
  error = response.json()['error']
  assert (response.status_code, error['param']) == (status, param), error
  assert words in error['message'] and '\n' not in error['message']
  assert client.get(path).json()['count'] == HISTORY


@pytest.mark.parametrize(
  ('path', 'given', 'param', 'words'),
  (
    ('streams/a b', {'readings': [1.0]}, 'id', 'letters'),
    ('streams/x', {'readings': [1.0]}, None, 'times is missing'),
    (
      'streams/x',
      {'readings': [None], 'times': ['2026-01-01']},
      None,
      'no rea',
    ),
    ('streams/x', {'readings': [1.0], 'times': [3]}, 'time', '1678'),
    (
      'streams/x',
      {'readings': [1e308, 1e308], 'times': ['2026-01-01', '2026-01-02']},
      'reading',
      'correct it',
    ),
    ('forecast', {'series': []}, 'series', 'at least 1'),
    ('forecast', {'series': [{'id': 'a'}]}, 'series.0.readings', 'missing'),
    (
      'forecast',
      {'series': [{'id': 'a', 'readings': [1.0]}]},
      'series.0',
      'times is missing',
    ),
  ),
)
def test_histories_that_cannot_be_read(client, path, given, param, words):
  ask = client.put if path.startswith('streams') else client.post
  response = ask(f'/v1/{path}', json=given)
  error = response.json()['error']
  assert (response.status_code, error['param']) == (400, param), error
  assert words in error['message']


def test_hostile_values_are_refused_by_their_field(model, frame, tmp_path):
  """Each field at each value; the stream reads as if there had been none."""
  history = body(frame, 's0', 0, HISTORY)
  asked = {'horizon': 2, 'quantiles': [0.5], 'model': 'load'}
  one = {'time': history['times'][-1], 'reading': history['readings'][-1]}
  routes = (
    ('PUT', '/v1/streams/other', history | asked | {'series': 's0'}),
    ('POST', '/v1/streams/same', history | asked),
    ('POST', '/v1/streams/same', one | asked),
    ('POST', '/v1/streams', {'readings': {'a': 1.0}, 'time': 'x'} | asked),
    ('POST', '/v1/forecast', {'series': [{'id': 'a', **history}], **asked}),
  )
  kind = {'Content-Type': 'application/json'}
  statuses = collections.Counter()
  with (
    serving(model, tmp_path) as service,
    served.client(service) as client,
  ):
    first = client.put('/v1/streams/same', json=history).json()
    for method, path, form in routes:
      for field in form:
        for value in bodies.JUNK:
          if value is None and field in ('time', 'times'):
            continue  # then the readings are the next ones
          content = json.dumps(form | {field: value})
          response = client.request(method, path, content=content, headers=kind)
          statuses[response.status_code] += 1
          if response.status_code == 200:
            continue
          error = response.json()['error']
          assert response.status_code < 500, (path, field, value, error)
          assert '\n' not in error['message'], error
    again = client.get('/v1/streams/same').json()
    for key in ('times', 'point', 'quantiles'):
      assert again[key] == first[key]
  assert {*statuses} <= {200, 400, 404, 409} and statuses[400] > 900


def test_too_many_streams_and_bytes(model, frame, tmp_path):
  with (
    serving(model, tmp_path, body_bytes=2000) as service,
    served.client(service) as client,
  ):
    given = body(frame, 's0', 0, HISTORY)
    for n in range(4):
      assert client.put(f'/v1/streams/{n}', json=given).status_code == 200
    response = client.put('/v1/streams/5', json=given)
    assert response.status_code == 429 and '4 streams' in response.text
    large = client.put('/v1/streams/0', json={'readings': [1.0] * 2000})
    assert large.status_code == 413
    kind = {'Content-Type': 'text/plain'}
    response = client.put('/v1/streams/0', content='{}', headers=kind)
    assert response.status_code == 415


def test_routes_for_other_models_are_refused(client, tmp_path):
  text = {'prompt': 'a'}
  for path, given in (
    ('completions', text),
    ('chat/completions', {'messages': [{'role': 'user', 'content': 'a'}]}),
    ('embeddings', {'input': 'a'}),
    ('score', {'input': 'a'}),
    ('classify', {'input': 'a'}),
    ('states', text),
  ):
    response = client.post(f'/v1/{path}', json=given)
    error = response.json()['error']
    assert (response.status_code, error['code']) == (400, 'wrong_endpoint')
    assert 'forecasts series: use /v1/forecast' in error['message']
  assert client.get('/v1/states').json()['error']['code'] == 'wrong_endpoint'
  classifier = model_lib.load(classifiers.write_texts(tmp_path / 'run'))
  with (
    served.service(classifier, tmp_path / 'states') as service,
    served.client(service) as other,
  ):
    for response in (
      other.post('/v1/forecast', json={'series': [{'id': 'a'}]}),
      other.put('/v1/streams/x', json={'readings': [1.0]}),
      other.get('/v1/streams'),
    ):
      error = response.json()['error']
      assert (response.status_code, error['code']) == (400, 'wrong_endpoint')
      assert 'predicts classes: use /v1/classify' in error['message']


def test_what_surrounds_the_streams(model, frame, tmp_path):
  log = tmp_path / 'log'
  with (
    serving(model, tmp_path / 'streams') as service,
    served.client(service, log=access_log.AccessLog(str(log))) as client,
  ):
    client.put('/v1/streams/x', json=body(frame, 's0', 0, HISTORY))
    client.post('/v1/streams/x', json={'reading': 1.0})
    (card,) = client.get('/v1/models').json()['data']
    assert card['capabilities'] == ['forecast']
    assert (card['frequency'], card['horizon']) == ('h', series.HORIZON)
    assert card['window'] == series.WINDOW and card['state_bytes'] > 0
    status = client.get('/v1/status').json()
    assert status['ready'] and (status['streams'], status['queued']) == (1, 0)
    assert status['readings'] == HISTORY + 1
    metrics = client.get('/metrics').text
    assert 'rnn_jax_streams 1.0' in metrics
    assert f'rnn_jax_stream_readings_total {HISTORY + 1}.0' in metrics
    assert 'route="/v1/streams/{id}"' in metrics
    paths = client.get('/openapi.json').json()['paths']
    assert {*paths[openapi.STREAM]} == {'put', 'post', 'parameters'}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    read = [x['readings'] for x in lines if x['path'] == '/v1/streams/x']
    assert read == [HISTORY, 1]
  assert not service.ready
