"""A server whose model has adapters, which a request chooses by `model`."""

import dataclasses

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import model as model_lib
from tests.inference import test_row_adapters as rows
from tests.serving.http import served
from tests.support import bundles
from tests.support import tiny


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  return bundles.make(tiny.raw_config('gone'), tokenizer_lib.Bytes(), seed=3)


@pytest.fixture(scope='module', name='client')
def _client(bundle, tmp_path_factory):
  """Has 'poet', and 'talker', which was trained on turns."""
  talker = rows.adapter(bundle, 2)
  task = config_lib.load('tasks', 'dialogue', 'task.name').Config()
  config = dataclasses.replace(talker.config, task=task)
  talker = dataclasses.replace(talker, config=config, step=7)
  seeds = iter((1, 5))

  def read(_):
    return {'poet': rows.adapter(bundle, next(seeds)), 'talker': talker}

  model = model_lib.Model(bundle)
  folder = tmp_path_factory.mktemp('states')
  load = {'best': model}.get
  keys = served.KEYS
  with (
    served.service(model, folder, keys, load, read) as service,
    served.client(service, served.OPS) as client,
  ):
    yield client


def ask(client, model, **body):
  """The answer to a completion."""
  body = {'prompt': 'the state', 'max_tokens': 8, 'seed': 1} | body
  body |= {'model': model} if model else {}
  response = client.post('/v1/completions', json=body)
  assert response.status_code == 200, response.text
  return response.json()


def refusal(client, path, **body):
  """(status, message, field) of a refused request."""
  response = client.post(path, json=body)
  error = response.json()['error']
  return response.status_code, error['message'], error['param']


def test_a_request_chooses_an_adapter(client):
  listed = client.get('/v1/models').json()['data']
  assert [x['id'] for x in listed] == ['tiny', 'poet', 'talker']
  assert [x['parent'] for x in listed] == [None, 'tiny', 'tiny']
  assert [x['step'] for x in listed] == [0, 0, 7]
  assert len({x['digest'] for x in listed}) == 3
  assert 'chat' in listed[2]['capabilities']
  assert listed[1]['capabilities'] == ['completions']
  assert client.get('/v1/models/talker').json() == listed[2]
  answers = [ask(client, name) for name in (None, 'tiny', 'poet', 'talker')]
  assert [x['model'] for x in answers] == ['tiny', 'tiny', 'poet', 'talker']
  texts = [x['choices'][0]['text'] for x in answers]
  assert texts[0] == texts[1] and len({*texts}) == 3
  prints = [x['system_fingerprint'] for x in answers[1:]]
  assert prints == [x['digest'][:16] for x in listed]
  code, message, field = refusal(
    client, '/v1/completions', model='x', prompt='a'
  )
  assert (code, field) == (404, 'model')
  assert message == "model='x': this server has 'tiny', 'poet', 'talker'"


def test_an_adapter_has_its_own_task(client):
  body = {'messages': [{'role': 'user', 'content': 'the key'}]}
  body |= {'max_tokens': 4, 'model': 'talker'}
  answer = client.post('/v1/chat/completions', json=body).json()
  assert answer['model'] == 'talker'
  chat = '/v1/chat/completions'
  code, message, _ = refusal(client, chat, **body | {'model': 'poet'})
  assert code == 400 and 'not trained on turns' in message
  for path, more in (
    ('/v1/embeddings', {'input': 'a'}),
    ('/v1/score', {'input': 'a'}),
    ('/v1/completions', {'prompt': 'ab', 'echo': True, 'logprobs': 1}),
  ):
    code, message, field = refusal(client, path, model='poet', **more)
    assert (code, field) == (400, 'model'), path
    assert message.startswith("model='poet': an adapter writes text here")


def test_a_state_is_continued_by_its_adapter(client):
  first = ask(client, 'poet', return_state='id')
  state = first['state']
  assert state['model'] == 'poet' and state['current']
  after = {'state': state['id'], 'prompt': ' and'}
  again = ask(client, 'poet', **after)
  for name, model in (('tiny', None), ('talker', 'talker')):
    body = after | ({'model': model} if model else {})
    code, message, field = refusal(client, '/v1/completions', **body)
    assert (code, field) == (400, 'state'), name
    assert "it is that of 'poet': ask that one" in message
  # The same text, read from the answer.
  made = client.post('/v1/states', json={'completion': first['id']}).json()
  assert made['model'] == 'poet'
  same = ask(client, 'poet', **after | {'state': made['id']})
  assert same['choices'] == again['choices']
  code, message, _ = refusal(
    client, '/v1/states', completion=first['id'], model='tiny'
  )
  assert code == 400 and "the completion is of 'poet'" in message
  made = client.post('/v1/states', json={'prompt': 'a', 'model': 'talker'})
  assert made.json()['model'] == 'talker'


def test_a_reload_reads_the_adapters_again(client):
  before = [ask(client, name)['choices'] for name in ('tiny', 'poet')]
  response = client.post('/admin/reload', json={'checkpoint': 'best'})
  assert response.status_code == 200, response.text
  after = [ask(client, name)['choices'] for name in ('tiny', 'poet')]
  assert before[0] == after[0] and before[1] != after[1]


def test_what_has_no_adapters_is_refused(bundle, tmp_path):
  def read(_):
    return {'tiny': rows.adapter(bundle, 1)}

  model = model_lib.Model(bundle)
  with (
    pytest.raises(errors.InputError, match="adapters='tiny': it is the model"),
    served.service(model, tmp_path, adapters=read),
  ):
    pass
