"""The serving suite: its workloads at small sizes, and its page."""

import contextlib
import json

import pytest

from benchmarks.suites import serving
from benchmarks.workloads import configs
from benchmarks.workloads.serving import exact
from benchmarks.workloads.serving import latency
from benchmarks.workloads.serving import model
from benchmarks.workloads.serving import over_http
from benchmarks.workloads.serving import same_texts
from benchmarks.workloads.serving import streams
from benchmarks.workloads.serving import throughput
from rnn_jax.inference import generate
from rnn_jax.interop import request
from rnn_jax.interop.formats import safetensors
from tests.benchmarks import made

TINY = serving.TINY | {'recurrence.impl': 'native'}  # compiles soon
SIZE = {'weights': 12_345, 'state_bytes': 678}
PROCESS = {'resident_bytes': 100 * 2**20, 'threads': 9, 'descriptors': 14}


@pytest.fixture(scope='module', autouse=True)
def _one_model():
  """All tests serve one tiny model, and share its programs."""
  bundle = made.bundle(configs.parse('stdlib_bytes', '', TINY))
  make = model.make
  source = generate.Generator.from_bundle(bundle)

  def make_once(overrides=None):
    return bundle if overrides == TINY else make(overrides)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(model, 'make', make_once)
    patch.setattr(model, 'generator', lambda overrides: source)
    yield


@pytest.fixture(scope='module', name='looped')
def _looped():
  return throughput.against_loop(1, 5, (16, 20), (3, 6), 2, TINY)


def test_the_loop_and_the_engine_do_the_same_work(looped):
  assert looped['same_texts'] == 5
  assert 15 <= looped['tokens'] <= 30
  assert 0 < looped['slots_in_use'] <= 1
  # The loop made more tokens than were asked for.
  assert looped['ratio_with_unused'] < looped['ratio']


def test_tokens_have_gaps_while_prompts_arrive():
  values = latency.between_tokens(1, 6, 40, 3, (16,), TINY)
  assert values['quiet']['gaps'] == values['arriving']['gaps'] == 2 * 6
  assert values['read_tokens_per_second'] > 0
  assert 0 < values['quiet']['p50'] <= values['quiet']['max']


def test_each_stream_reads_in_a_round():
  values = streams.read(1, 2, 20, TINY)
  assert values['streams'] == 2 and values['stream_bytes'] > 0
  assert values['readings_per_second'] > 0


def test_a_request_that_differs_among_others_is_counted(monkeypatch):
  record, count = exact._record, 0

  def altered(handle):
    nonlocal count
    count += 1
    tokens, texts = record(handle)
    return (tokens, 'other') if count == 3 else (tokens, texts)

  monkeypatch.setattr(exact, '_record', altered)
  values = exact.alone_and_together(4, 2, overrides=TINY)
  assert values['requests'] == 4 and values['tokens'] > 4
  assert values['different'] == 1


def test_a_text_that_parts_far_from_a_draw_has_a_large_gap(monkeypatch):
  loop = throughput.loop

  def altered(*arguments):
    first, second, *others = loop(*arguments)
    return [first, (second[0], (second[1] + 99) % 256, *second[2:]), *others]

  monkeypatch.setattr(throughput, 'loop', altered)
  sizes = (16, 20), (3, 6)
  values = same_texts.beside_loop(4, *sizes, 2, overrides=TINY)
  assert values['same_texts'] == 3
  assert values['largest_gap'] > 0.1  # a third of the vocabulary is between
  assert values['largest_change'] < 0.01


@pytest.mark.peers
def test_a_plain_server_writes_the_same_tokens(tmp_path):
  from starlette import testclient

  from benchmarks.workloads import torch_residual
  from benchmarks.workloads.serving import peer
  from benchmarks.workloads.serving import plain_server

  bundle = model.make(TINY | serving.FLOAT32)
  path = tmp_path / 'model.safetensors'
  safetensors.write(bundle, request.Target(path))
  network = torch_residual.load(path, bundle.config.cell.heads)
  source = generate.Generator.from_bundle(bundle)
  peer._check_same(source, network, 9, 30)
  with testclient.TestClient(plain_server.make(network)) as client:
    form = {'prompt': [1, 2], 'max_tokens': 5}
    answer = client.post('/v1/completions', json=form).json()
    assert answer['usage'] == {'prompt_tokens': 2, 'completion_tokens': 5}
    assert client.post('/v1/completions', json={}).status_code == 422
  network.head.bias[7] += 9
  with pytest.raises(RuntimeError, match='other tokens'):
    peer._check_same(source, network, 9, 30)


class Server:
  """A server that is always idle."""

  port, errors, code = 0, 0, 143

  def idle(self):
    return {'active': 0, 'queued': 0}

  def resources(self):
    return PROCESS


class Client:
  """What a client of it gets: one answer is wrong, and one connection ends."""

  asked = 0

  def __init__(self, port):
    pass

  def __enter__(self):
    return self

  def __exit__(self, *_):
    pass

  def close(self):
    pass

  def ask(self, method, path, form):
    Client.asked += 1
    text = 'wrong' if Client.asked == over_http.KNOWN + 1 else 'right'
    if Client.asked == over_http.KNOWN + 2:
      raise ConnectionResetError
    usage = {'completion_tokens': form['max_tokens']}
    return 200, {'choices': [text], 'usage': usage}

  def send(self, method, path, content):
    return 400, json.dumps({'error': {'param': 'a'}}).encode()

  def leave(self, path, form):
    return 200, b'data: {}'


def test_a_soak_counts_what_is_lost_and_wrong(monkeypatch):
  @contextlib.contextmanager
  def serve(*_):
    yield Server()

  monkeypatch.setattr(over_http, '_write', lambda *_: SIZE)
  monkeypatch.setattr(over_http, 'SETTLE', 0.0)
  monkeypatch.setattr(over_http.server_lib, 'serving', serve)
  monkeypatch.setattr(over_http.server_lib, 'Client', Client)
  values = over_http.soak(20, clients=1)
  assert values['outcomes'] == {'refused': 2, 'left': 2, 'answered': 15}
  assert values['lost'] == 1 and values['wrong'] == 1
  assert values['first'] == values['last'] == PROCESS


def page(tmp_path, *rows):
  return made.section(tmp_path, 'serving', rows)


def test_goals_stand_beside_what_was_measured(tmp_path, looped):
  mixed = made.row(serving.MIXED, 0.5, **SIZE)
  mixed |= looped | {'parameters': {'requests': 5}}
  mixed |= {'ratio': 0.9, 'ratio_with_unused': 0.5}
  soak = made.row(serving.SOAK, **SIZE) | {
    'requests': 2000,
    'seconds': 9.0,
    'outcomes': {'answered': 1998},
    'lost': 2,
    'wrong': 0,
    'tokens': 5,
    'first': PROCESS,
    'last': PROCESS | {'resident_bytes': 101 * 2**20, 'threads': 10},
    'faults': ['17: ConnectionResetError'],
    'tracebacks': 0,
    'left_in_slots': 0,
    'exit_code': 143,
  }
  text = page(tmp_path, mixed, soak)
  assert "| throughput, of the loop's | >= .95 | 0.90 | no |" in text
  assert '| 0.90 | 0.50 |' in text
  assert '| soak: lost requests | 0 | 2 | no |' in text
  assert '| soak: wrong answers | 0 | 0 | yes |' in text
  assert 'after the first tenth | <= 2 % | 1 % | yes |' in text
  assert '| soak: threads or descriptors left | 0 | 1 | no |' in text
  assert 'Soak: 2,000 requests in 9.00 s, 5 tokens: 1,998 answered;' in text
  assert '143 after SIGTERM. 17: ConnectionResetError.' in text
