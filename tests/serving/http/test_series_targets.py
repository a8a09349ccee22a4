"""Streams of several targets: lists of readings, with the bits of Python."""

import numpy as np

from rnn_jax.inference import model as model_lib
from tests.serving.http import served
from tests.serving.http import test_series
from tests.support import series

HISTORY = 20


def check_same(answer, forecast):
  for target, numbers in answer['targets'].items():
    own = forecast.of(target)
    assert answer['times'] == own.times
    test_series.check_same(numbers | {'times': own.times}, own)


def test_a_reading_is_a_list(tmp_path):
  frame = series.with_targets(series.frame())
  frame.to_csv(tmp_path / 'series.csv', index=False)
  bundle = series.bundle(tmp_path / 'series.csv', **series.TARGETS)
  model = model_lib.Model(bundle)
  own = frame[frame.unique_id == 's1']
  readings = [
    [None if np.isnan(x) else x for x in row]
    for row in own[['y', 'z']].to_numpy().tolist()
  ]
  times = [x.isoformat() for x in own.ds]
  history = {'times': times[:HISTORY], 'readings': readings[:HISTORY]}
  state, path = model.begin(own[:HISTORY]), '/v1/streams/s1'
  forecast = model.forecaster.forecast(state)
  for first in (HISTORY, 30):
    with (
      test_series.serving(model, tmp_path / 'streams') as service,
      served.client(service) as client,
    ):
      if first == HISTORY:
        check_same(client.put(path, json=history).json(), forecast)
        given = {'series': [{'id': 's1', **history}]}
        answer = client.post('/v1/forecast', json=given).json()
        check_same(answer['data'][0], forecast)
      for n in range(first, first + 10):
        one = {'reading': readings[n], 'time': times[n]}
        state, forecast = model.observe(state, own[['y', 'z']].to_numpy()[n])
        for added in (1, 0):
          answer = client.post(path, json=one).json()
          assert answer['added'] == added
          check_same(answer, forecast)
      last = client.get(path).json()
      check_same(last, forecast)
      recent = np.array(last['recent']['readings'], float)
      assert recent.shape == (series.WINDOW, 2)
      for wrong in (1.0, None, [1.0], [1.0, 2.0, 3.0]):
        response = client.post(path, json={'reading': wrong})
        error = response.json()['error']
        assert (response.status_code, error['param']) == (400, 'reading')
        assert "('y', 'z')" in error['message']
      assert client.get('/v1/models').json()['data'][0]['targets'] == ['y', 'z']
