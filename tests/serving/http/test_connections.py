"""Clients that only hold their connections: each phase ends, others go on."""

import contextlib
import json
import resource
import socket
import time

import httpx2
import pytest

from rnn_jax import errors
from rnn_jax.serving.http import connections
from tests.faults import bodies
from tests.serving.http import served
from tests.support import waiting

# A stream of long events that nobody could make whole.
STREAM = {
  'prompt': 'a', 'max_tokens': served.FOREVER, 'ignore_eos': True,
  'stream': True, 'logprobs': 20, 'n': 4,
}  # fmt: skip
HEAD = b'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n'


@pytest.fixture(name='service', scope='module')
def _service(tmp_path_factory):
  folder = tmp_path_factory.mktemp('states')
  with served.service(served.turns_model(), folder) as service:
    yield service


def connect(url, content=b''):
  """A connection that has sent this."""
  host, port = url.removeprefix('http://').split(':')
  made = socket.create_connection((host, int(port)), timeout=20)
  made.sendall(content)
  return made


def rest(connection):
  """What the server sends until it ends the connection."""
  parts = []
  with contextlib.suppress(ConnectionError):
    while part := connection.recv(4096):
      parts.append(part)
  return b''.join(parts)


def is_ended(connection):
  """Whether the server has ended a connection, after what it had sent."""
  connection.settimeout(0.01)
  try:
    while connection.recv(2**20):
      pass
  except TimeoutError:
    return False
  except ConnectionError:
    pass
  return True


@pytest.mark.parametrize(
  'content, answered',
  [
    (b'', b''),
    (b'GET /healthz HT', b' 408 '),
    (HEAD, b' 408 '),
    # It is answered before its body has come.
    (HEAD + b'Content-Length: 50\r\n\r\n{', b' 200 '),
    (HEAD + b'\r\n', b' 200 '),
    (HEAD + b'\r\n' + HEAD, b' 408 '),
  ],
)
def test_a_phase_that_lasts_too_long_ends(service, content, answered):
  short = {'idle': 0.2, 'head': 0.2, 'body': 0.2, 'reading': 0.2}
  with (
    served.address(service, **short) as url,
    connect(url, content) as connection,
  ):
    assert answered in rest(connection)


def test_a_head_that_comes_in_drips_ends(service):
  with (
    served.address(service, head=0.5) as url,
    connect(url, HEAD) as connection,
  ):
    begun = time.monotonic()
    with contextlib.suppress(ConnectionError):
      while time.monotonic() < begun + 20:
        connection.sendall(b'X: a\r\n')
        time.sleep(0.05)
    assert time.monotonic() < begun + 20


@pytest.mark.parametrize('content', [b'', HEAD, bodies.CUT])
def test_idle_ones_keep_nobody_out(service, content, monkeypatch, caplog):
  monkeypatch.setattr(connections, '_said', {})
  body = {'prompt': 'the gate', 'max_tokens': 3, 'seed': 1}
  with (
    served.address(service, connections=8) as url,
    httpx2.Client(base_url=url, timeout=20) as client,
    contextlib.ExitStack() as stack,
  ):
    before = client.post('/v1/completions', json=body).json()['choices']
    idle = [stack.enter_context(connect(url, content)) for _ in range(20)]
    for _ in range(3):
      assert httpx2.get(f'{url}/healthz', timeout=20).status_code == 200
    answer = client.post('/v1/completions', json=body)
    assert answer.json()['choices'] == before
    waiting.until(lambda: sum(map(is_ended, idle)) >= 20 - 8)
  lines = [x for x in caplog.records if 'connections' in x.getMessage()]
  assert len(lines) == 1


def test_when_all_are_answered_a_new_one_gets_503(service):
  with (
    served.address(service, connections=2) as url,
    contextlib.ExitStack() as stack,
  ):
    for _ in range(2):
      sent = served.send(url, '/v1/completions', STREAM, read=1)
      next(sent)
      stack.callback(sent.close)
    connection = stack.enter_context(connect(url))
    assert b' 503 ' in rest(connection)


@pytest.mark.parametrize(
  'patience, sips', [({'reading': 0.5}, 0), ({'answer': 1.0}, 0.05)]
)
def test_a_client_that_does_not_read_is_ended(service, patience, sips):
  body = json.dumps(STREAM).encode()
  with served.address(service, **patience) as url:
    with connect(url) as connection:
      connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
      connection.sendall(
        b'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: '
        b'application/json\r\nContent-Length: %d\r\n\r\n%s' % (len(body), body)
      )
      waiting.until(lambda: service.stats().active)
      begun = time.monotonic()
      while service.stats().active and time.monotonic() < begun + 60:
        if sips:
          with contextlib.suppress(ConnectionError):
            connection.recv(1)
        time.sleep(sips or 0.05)
      assert not service.stats().active
      assert httpx2.get(f'{url}/healthz').status_code == 200
  assert service.stats().ended['cancelled']


@pytest.mark.parametrize(
  'limits, count',
  [
    ((256, 256), 256 - 32 - 3 - 2 * 27),
    ((256, 1024), 1024 - 32 - 3 - 2 * 123),
    ((1024, 2**20), connections.MAX_CONNECTIONS),
    ((2**20, 2**20), connections.MAX_CONNECTIONS),
    ((1024, resource.RLIM_INFINITY), connections.MAX_CONNECTIONS),
    (
      (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
      connections.MAX_CONNECTIONS,
    ),
  ],
)
def test_connections_fit_the_descriptors(monkeypatch, limits, count):
  kept = [limits]
  monkeypatch.setattr(resource, 'getrlimit', lambda _: kept[-1])
  monkeypatch.setattr(resource, 'setrlimit', lambda _, new: kept.append(new))
  monkeypatch.setattr(connections.os, 'listdir', lambda _: ['0', '1', '2'])
  room = connections.available()
  assert room.connections == count
  soft, hard = kept[-1]
  assert hard == limits[1]
  assert soft == resource.RLIM_INFINITY or soft > count + 2 * room.burst


def test_too_few_descriptors_are_refused(monkeypatch):
  monkeypatch.setattr(resource, 'getrlimit', lambda _: (64, 64))
  monkeypatch.setattr(resource, 'setrlimit', None)
  with pytest.raises(errors.InputError, match='ulimit -n'):
    connections.available()
