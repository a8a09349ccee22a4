"""Small models as servers, in this process."""

import contextlib
import dataclasses
import json
import socket
import threading

from starlette import testclient

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import model as model_lib
from rnn_jax.serving import engine
from rnn_jax.serving import store as store_lib
from rnn_jax.serving.http import app as app_lib
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import server as server_lib
from rnn_jax.serving.http import service as service_lib
from tests.inference import models
from tests.support import bundles
from tests.support import jobs

ENGINE = engine.Options(slots=4, steps=4, chunks=(4, 16), queue=4)
KEY = b'k' * 32
ALICE, BOB, OPS = (
  'alice-key-0123456789',
  'bob-key-0123456789',
  'ops-key-012345678',
)
KEYS = f'alice {ALICE}\nbob {BOB}\nops {OPS} admin\n'
FOREVER = 10**6  # tokens that no test waits for


def turns_model(tokenizer=None):
  """A model of dialogues, with random parameters.

  Its network is that of tests/inference/runs.py, which is then compiled once.
  """
  raw = config_lib.default()
  raw.model.update(layers=2, width=12)
  raw.cell.update(models.CELLS['simple_rnn'])
  raw.task.update(name='dialogue', reply_tokens=20)
  raw.data.update(source='jsonl', field='turns', length=64)
  return model_lib.Model(
    bundles.make(raw, tokenizer or tokenizer_lib.Bytes(), seed=3)
  )


@contextlib.contextmanager
def service(model, folder, keys='', load=None, adapters=None, **limits):
  """A running service of a model, with its states in a folder."""
  options = {'adapters': adapters} if adapters else {}
  limits = {'new_tokens': FOREVER} | limits
  with service_lib.Service(
    model,
    service_lib.Options('tiny', service_lib.Limits(**limits), KEY, **options),
    ENGINE,
    store_lib.open_store(str(folder)),
    auth.parse(keys, 'test'),
    load,
  ).running(0.0) as running:
    yield running


def start(workdir, *flags):
  """A server in a process of its own. Returns (the process, its URL)."""
  flags = f'--workdir={workdir}', '--port=0', '--drain_seconds=1', *flags
  process = jobs.Process('serve', *flags, env=jobs.environment())
  line = process.read_line()
  assert ' is ready at http://' in line, process.communicate()
  return process, line.split(' at ')[1].split(' after')[0].rstrip('/')


@contextlib.contextmanager
def client(service, key='', **options):
  """A client of a service, without a socket."""
  headers = {'Authorization': f'Bearer {key}'} if key else {}
  app = app_lib.make(service, **options)
  with testclient.TestClient(
    app, base_url='http://localhost', headers=headers
  ) as made:
    yield made


@contextlib.contextmanager
def address(service, **patience):
  """The URL of a service that listens at a port."""
  limits = server_lib.patience(service.options.limits)
  listening = threading.Event()
  bound = server_lib.listen('127.0.0.1', 0)
  server = server_lib.make(
    app_lib.make(service),
    listening.set,
    dataclasses.replace(limits, **patience),
  )
  thread = threading.Thread(target=server.run, args=([bound],))
  thread.start()
  assert listening.wait(30)
  try:
    yield 'http://127.0.0.1:{1}'.format(*bound.getsockname())
  finally:
    server.should_exit = True
    thread.join()


def events(text):
  """The objects of a stream, which ends as OpenAI's do."""
  parts = text.split('\n\n')
  assert parts[-2:] == ['data: [DONE]', '']
  assert all(part.startswith('data: ') for part in parts[:-1])
  return [json.loads(part.removeprefix('data: ')) for part in parts[:-2]]


def send(url, path, body, read=0):
  """Sends a request, reads so many bytes of the answer, and leaves."""
  host, port = url.removeprefix('http://').split(':')
  content = json.dumps(body).encode()
  with socket.create_connection((host, int(port))) as connection:
    connection.sendall(
      f'POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: '
      f'application/json\r\nContent-Length: {len(content)}\r\n\r\n'.encode()
      + content
    )
    if read:
      connection.recv(read)
    yield
