"""A server of streams as a process: it is killed, and loses no reading."""

import signal
import threading

import httpx2
import numpy as np
import pytest

from rnn_jax.inference import model as model_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.serving.http import served
from tests.support import series
from tests.support import waiting

HISTORY = 20  # readings that begin a stream
LENGTH = 120
BEFORE = 25  # answers of each client, at least, before the kill


class Client(threading.Thread):
  """Streams a series into the server, reading by reading.

  A reading without an answer is sent again to whatever server there is then.
  """

  def __init__(self, own, at):
    super().__init__()
    self.own, self.at = own, at
    self.answers = []
    self.again = 0
    self.failure = None

  def run(self):
    try:
      name = self.own.unique_id.iloc[0]
      times = [time.isoformat() for time in self.own.ds]
      readings = [None if np.isnan(y) else y for y in self.own.y]
      begin = {'times': times[:HISTORY], 'readings': readings[:HISTORY]}
      path = f'/v1/streams/{name}'
      self.answers.append(self.ask('PUT', path, begin))
      for time, reading in zip(
        times[HISTORY:], readings[HISTORY:], strict=True
      ):
        body = {'time': time, 'reading': reading}
        self.answers.append(self.ask('POST', path, body))
    except BaseException as error:
      self.failure = error
      raise

  def ask(self, method, path, body):
    while True:
      url = self.at['url']
      try:
        response = httpx2.request(method, url + path, json=body, timeout=60)
      except httpx2.TransportError:
        self.again += 1
        waiting.until(lambda url=url: self.at['url'] != url)
        continue
      assert response.status_code == 200, response.text
      return response.json()


@pytest.mark.slow
def test_no_answered_reading_is_lost_by_a_kill(tmp_path):
  frame = series.frame(2, LENGTH)
  path = tmp_path / 'series.csv'
  frame.to_csv(path, index=False)
  workdir = tmp_path / 'run'
  bundle_lib.write(series.bundle(path), workdir)
  process, url = served.start(workdir, '--streams=8')
  at = {'url': url}
  clients = [
    Client(frame[frame.unique_id == name], at) for name in ('s0', 's1')
  ]
  for client in clients:
    client.start()
  waiting.until(
    lambda: all(len(x.answers) > BEFORE or x.failure for x in clients)
  )
  process.kill()
  process.communicate()
  process, at['url'] = served.start(workdir, '--streams=8')
  for client in clients:
    client.join()

  model = model_lib.load(workdir)
  for client in clients:
    assert client.failure is None and client.again > 0
    state = model.begin(client.own.iloc[:HISTORY])
    forecast = model.forecaster.forecast(state)
    assert len(client.answers) == 1 + LENGTH - HISTORY
    for n, answer in enumerate(client.answers):
      if n:
        reading = client.own.y.iloc[HISTORY + n - 1]
        state, forecast = model.observe(state, reading)
      assert answer['count'] == HISTORY + n
      assert answer['times'] == forecast.times
      columns = np.array([*answer['quantiles'].values()])
      assert np.array_equal(columns.T, forecast.quantiles_HxQ)
    # All but one were applied once; that one may have been, unanswered.
    added = [answer['added'] for answer in client.answers[1:]]
    assert added.count(1) >= len(added) - 1

  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGTERM, (out, err)
  assert 'Traceback' not in err
