"""The server at a port: clients that leave, queues, hostile requests, ends."""

import collections
import gc
import logging
import os
import signal
import socket
import threading

import httpx2
import pytest

from tests.faults import bodies
from tests.faults import clients
from tests.inference import runs
from tests.serving.http import served
from tests.support import waiting

LIMITS = {'new_tokens': 24, 'prompt_tokens': 2000, 'body_bytes': 100_000}
GOOD = {'prompt': 'the gate', 'max_tokens': 5, 'seed': 11}
LONG = {'prompt': 'a', 'max_tokens': served.FOREVER, 'ignore_eos': True}


@pytest.fixture(name='service', scope='module')
def _service(tmp_path_factory):
  folder = tmp_path_factory.mktemp('states')
  with served.service(served.turns_model(), folder) as service:
    yield service


@pytest.fixture(name='url', scope='module')
def _url(service):
  with served.address(service) as url:
    yield url


def free(service):
  """Whether nothing runs."""
  stats = service.stats()
  return not stats.active and not stats.queued


@pytest.mark.parametrize('stream', [False, True])
def test_a_client_that_leaves_frees_its_slots(service, url, stream):
  body = LONG | {'n': 3, 'stream': stream}
  connections = [
    served.send(url, '/v1/completions', body, read=100 if stream else 0)
    for _ in range(3)
  ]
  for connection in connections:
    next(connection)
  waiting.until(lambda: service.stats().active == served.ENGINE.slots)
  for connection in connections:
    connection.close()
  waiting.until(lambda: free(service))
  assert service.stats().ended.get('cancelled', 0) >= 9


def test_a_full_queue_says_when_to_try_again(service, url):
  connections = [
    served.send(url, '/v1/completions', LONG | {'n': 4, 'stream': True}, 1)
  ]
  next(connections[0])
  with httpx2.Client(base_url=url) as client:
    while service.stats().queued < served.ENGINE.queue:
      connections.append(served.send(url, '/v1/completions', LONG))
      next(connections[-1])
      before = service.stats().queued
      waiting.until(lambda b=before: service.stats().queued > b or b)
    statuses = {}
    for _ in range(10):
      connections.append(served.send(url, '/v1/completions', LONG))
      next(connections[-1])
      response = client.post('/v1/completions', json={'prompt': ['a'] * 4})
      statuses[response.status_code] = response
  refused = statuses[429]
  assert int(refused.headers['Retry-After']) >= 1
  assert refused.json()['error']['type'] == 'rate_limit_error'
  for connection in connections:
    connection.close()
  waiting.until(lambda: free(service))


def test_attempts_of_the_fuzzer_do_no_harm(service, tmp_path, caplog):
  files = len(os.listdir('/proc/self/fd'))
  statuses = collections.Counter()
  with (
    served.service(service.model, tmp_path, **LIMITS) as small,
    served.address(small) as url,
    httpx2.Client(base_url=url, timeout=60) as client,
  ):
    expected = client.post('/v1/completions', json=GOOD).json()['choices']
    for n, attempt in enumerate(few_attempts()):
      status, content = attempt.act(int(url.rpartition(':')[2]))
      statuses[status] += 1
      assert clients.judge(attempt, status, content.decode()) is None, attempt
      if n % 25 == 24:
        good = client.post('/v1/completions', json=GOOD)
        assert good.json()['choices'] == expected, attempt
    waiting.until(lambda: free(small))
  gc.collect()
  assert len(os.listdir('/proc/self/fd')) <= files
  assert not [x for x in caplog.records if x.levelno >= logging.ERROR]
  assert statuses[200] > 5 and statuses[400] > 40


def few_attempts():
  """Some attempts of each kind; crowds of connections need a process."""
  every = [x for x in clients.attempts() if 'connections' not in x.name]
  return [x for n, x in enumerate(every) if 'mutation' in x.name or n % 40 == 0]


@pytest.mark.parametrize(
  'status, text, kind',
  [
    (500, '', 'traceback'),
    (503, '', 'traceback'),
    (400, 'top_k is wrong', 'misleading'),
    (400, 'top_p is wrong', None),
    (200, '', None),
    (0, '', None),
  ],
)
def test_a_wrong_end_of_an_attempt_is_noticed(status, text, kind):
  attempt = clients.Attempt('x', lambda _: (0, b''), 'top_p')
  defect = clients.judge(attempt, status, text)
  assert (defect and defect[0]) == kind


def test_a_slow_body_is_given_up(service, tmp_path):
  with (
    served.service(service.model, tmp_path, body_seconds=0.2) as slow,
    served.address(slow) as url,
  ):
    host, port = url.removeprefix('http://').split(':')
    with socket.create_connection((host, int(port))) as connection:
      connection.sendall(bodies.CUT)
      connection.settimeout(20)
      assert b' 408 ' in connection.recv(4096)


def test_one_key_cannot_take_all(service, tmp_path):
  with (
    served.service(
      service.model, tmp_path, served.KEYS, owner_requests=1
    ) as limited,
    served.address(limited) as url,
    httpx2.Client(base_url=url) as client,
  ):
    alice, bob = (
      {'Authorization': f'Bearer {key}'} for key in (served.ALICE, served.BOB)
    )
    body = LONG | {'stream': True}
    with client.stream(
      'POST', '/v1/completions', json=body, headers=alice
    ) as stream:
      parts = stream.iter_bytes()
      next(parts)
      short = {'prompt': 'a', 'max_tokens': 2}
      for headers, status in ((alice, 429), (bob, 200)):
        response = client.post('/v1/completions', json=short, headers=headers)
        assert response.status_code == status
    waiting.until(lambda: free(limited))
    response = client.post('/v1/completions', json=short, headers=alice)
    assert response.status_code == 200


def start(workdir):
  return served.start(workdir, '--slots=4', '--queue=9', '--weights=int8')


@pytest.mark.slow
def test_a_server_ends_in_order_and_its_states_outlive_a_kill(tmp_path):
  openai = pytest.importorskip('openai')
  workdir = runs.make(tmp_path / 'run', boundary_bias=-9.0)
  process, url = start(workdir)
  client = openai.OpenAI(base_url=f'{url}/v1', api_key='-', max_retries=0)
  (model,) = client.models.list().data
  assert model.id == 'run' and model.step == 2  # of the smallest loss
  body = {'model': 'run', 'prompt': 'the gate', 'max_tokens': 20, 'seed': 3}
  whole = client.completions.create(**body, logprobs=2)
  parts = [
    part.choices[0].text
    for part in client.completions.create(**body, stream=True)
  ]
  assert ''.join(parts) == whole.choices[0].text
  assert len(whole.choices[0].logprobs.token_logprobs) == 20
  assert whole.usage.completion_tokens == 20
  vector = client.embeddings.create(model='run', input='a').data[0].embedding
  assert len(vector) == 12
  with pytest.raises(openai.BadRequestError, match='not trained on turns'):
    client.chat.completions.create(
      model='run', messages=[{'role': 'user', 'content': 'a'}]
    )
  state = httpx2.post(f'{url}/v1/states', json={'prompt': 'the key'}).json()
  follow = body | {'prompt': ' reads', 'extra_body': {'state': state['id']}}
  before = client.completions.create(**follow).choices[0].text

  process.kill()  # as by kill -9, under load
  process.communicate()
  process, url = start(workdir)
  client = openai.OpenAI(base_url=f'{url}/v1', api_key='-', max_retries=0)
  assert client.completions.create(**follow).choices[0].text == before

  ended = {}

  def write():
    ended['answer'] = client.completions.create(
      model='run', prompt='a', max_tokens=4000, extra_body={'ignore_eos': True}
    )

  thread = threading.Thread(target=write)
  thread.start()
  waiting.until(lambda: httpx2.get(f'{url}/v1/status').json()['active'])
  process.send_signal(signal.SIGTERM)
  thread.join()
  out, err = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGTERM, (out, err)
  assert 'Traceback' not in err
  assert ended['answer'].choices[0].finish_reason == 'length'
  assert ended['answer'].choices[0].text
  assert out.count('\n') == 1
