"""The routes, on small models, in process."""

import base64
import json

import numpy as np
import pytest

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import sampling
from rnn_jax.serving.http import access_log
from rnn_jax.serving.http import plans
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import service as service_lib
from tests.inference import runs
from tests.serving.http import served
from tests.support import chats
from tests.support import classifiers


@pytest.fixture(name='workdir', scope='module')
def _workdir(tmp_path_factory):
  return runs.make(tmp_path_factory.mktemp('run') / 'run', boundary_bias=-3.0)


@pytest.fixture(name='service', scope='module')
def _service(workdir, tmp_path_factory):
  def load(which):
    return model_lib.load(workdir, which)

  folder = tmp_path_factory.mktemp('states')
  with served.service(load('best'), folder, served.KEYS, load) as service:
    yield service


@pytest.fixture(name='client', scope='module')
def _client(service):
  with served.client(service, served.ALICE) as client:
    yield client


@pytest.fixture(name='chat', scope='module')
def _chat(tmp_path_factory):
  folder = tmp_path_factory.mktemp('turns')
  with (
    served.service(served.turns_model(), folder) as service,
    served.client(service) as client,
  ):
    yield client


def ask(client, **body):
  """The answer to a completion."""
  response = client.post('/v1/completions', json=body)
  assert response.status_code == 200, response.text
  return response.json()


def test_texts_are_those_of_generate(client, service):
  prompts, count = ['the state', 'a', ''], 2
  answer = ask(
    client, prompt=prompts, n=count, max_tokens=12, temperature=0.9, top_k=40,
    seed=5, logprobs=0,
  )  # fmt: skip
  options = generate.Options(
    max_new_tokens=12, sampling=sampling.Sampling(0.9, 40), seed=5
  )
  each = [prompt for prompt in prompts for _ in range(count)]
  expected = service.model.generator.generate(each, options).completions
  assert [x['text'] for x in answer['choices']] == [x.text for x in expected]
  assert [x['index'] for x in answer['choices']] == [*range(6)]
  for got, want in zip(answer['choices'], expected, strict=True):
    logprob = sum(got['logprobs']['token_logprobs'])
    assert len(got['logprobs']['tokens']) == len(want.tokens)
    assert logprob == pytest.approx(want.logprob, abs=1e-3)
  new = sum(len(x.tokens) for x in expected)
  assert answer['usage']['completion_tokens'] == new
  assert answer['usage']['prompt_tokens'] == 10 + 2 + 1


def test_a_text_without_a_seed_can_be_had_again(client):
  first = ask(client, prompt='a gate', max_tokens=8)
  again = ask(client, prompt='a gate', max_tokens=8, seed=first['seed'])
  other = ask(client, prompt='a gate', max_tokens=8)
  assert first['choices'] == again['choices']
  assert other['seed'] != first['seed']


@pytest.mark.parametrize('more', [{}, {'n': 3}, {'echo': True}])
def test_the_parts_of_a_stream_add_up(client, more):
  body = {
    'prompt': 'the key',
    'max_tokens': 20,
    'seed': 1,
    'logprobs': 1,
  } | more
  whole = ask(client, **body)
  response = client.post(
    '/v1/completions',
    json=body | {'stream': True, 'stream_options': {'include_usage': True}},
  )
  assert response.headers['content-type'].startswith('text/event-stream')
  parts = served.events(response.text)
  assert all(part['usage'] is None for part in parts[:-1])
  assert parts[-1]['choices'] == []
  for name in ('prompt_tokens', 'completion_tokens'):
    assert parts[-1]['usage'][name] == whole['usage'][name]
  for choice in whole['choices']:
    own = [
      x
      for part in parts
      for x in part['choices']
      if x['index'] == choice['index']
    ]
    assert ''.join(x['text'] for x in own) == choice['text']
    assert own[-1]['finish_reason'] == choice['finish_reason'] == 'length'
    assert all(x['finish_reason'] is None for x in own[:-1])
    for name in ('tokens', 'token_logprobs', 'text_offset'):
      joined = [y for x in own if x['logprobs'] for y in x['logprobs'][name]]
      assert joined == choice['logprobs'][name]


def test_an_echo_has_the_log_probabilities_of_the_prompt(client, service):
  answer = ask(client, prompt='the gate', max_tokens=0, echo=True, logprobs=2)
  (choice,) = answer['choices']
  ids = service.model.generator.prompts.encode('the gate')
  values = service.model.scorer.values(ids, 2)
  assert choice['text'] == 'the gate'
  assert choice['logprobs']['tokens'] == [*'the gate']
  assert choice['logprobs']['text_offset'] == [*range(8)]
  np.testing.assert_array_equal(
    np.float32(choice['logprobs']['token_logprobs']), values.logprob_L
  )
  assert answer['usage']['completion_tokens'] == 0


def test_a_stop_string_ends_a_text(client):
  body = {'prompt': 'the', 'max_tokens': 40, 'seed': 2}
  (whole,) = ask(client, **body)['choices']
  stop = whole['text'][10:12]
  (cut,) = ask(client, **body, stop=[stop])['choices']
  assert cut['text'] == whole['text'][: whole['text'].index(stop)]
  assert (cut['finish_reason'], cut['stop_reason']) == ('stop', 'stop')


def test_a_bias_and_a_constraint_decide_tokens(client):
  bias = {str(ord('x')): 100}
  (choice,) = ask(client, prompt='a', max_tokens=4, logit_bias=bias)['choices']
  assert choice['text'] == 'xxxx'
  pytest.importorskip('llguidance')
  (choice,) = ask(
    client, prompt='a', max_tokens=20, guided_regex='[0-9]{3}-[a-f]'
  )['choices']
  assert len(choice['text']) == 5 and choice['text'][3] == '-'
  (choice,) = ask(
    client,
    max_tokens=50,
    response_format={
      'type': 'json_schema',
      'json_schema': {'name': 'a', 'schema': {'enum': ['one', 'two']}},
    },
  )['choices']
  assert json.loads(choice['text']) in ('one', 'two')


def test_a_text_begins_from_a_state(client):
  whole = ask(client, prompt='the state reads', max_tokens=9, seed=4)
  for form in ('id', 'bytes'):
    made = client.post(
      '/v1/states', json={'prompt': 'the state ', 'form': form}
    )
    assert made.status_code == 200, made.text
    state = made.json()
    assert state['tokens'] == 11
    given = state['id'] if form == 'id' else state['data']
    rest = ask(client, prompt='reads', state=given, max_tokens=9, seed=4)
    assert rest['choices'][0]['text'] == whole['choices'][0]['text']
    assert rest['usage']['prompt_tokens'] == 5


def test_an_answer_s_state_continues_it(client):
  first = ask(
    client, prompt='a', max_tokens=6, seed=1, return_state='id', ignore_eos=True
  )
  made = client.post('/v1/states', json={'completion': first['id']}).json()
  assert made['tokens'] == first['state']['tokens'] == 1 + 1 + 6
  texts = {
    ask(client, state=state['id'], max_tokens=8, seed=9)['choices'][0]['text']
    for state in (first['state'], made)
  }
  assert len(texts) == 1
  response = client.get(f'/v1/states/{made["id"]}')
  assert base64.b64decode(response.json()['data'])


def test_one_key_cannot_use_another_s_states(client, service):
  made = client.post('/v1/states', json={'prompt': 'mine'}).json()
  data = client.get(f'/v1/states/{made["id"]}').json()['data']
  answer = ask(client, prompt='a', max_tokens=2)
  listed = client.get('/v1/states').json()['data']
  assert made['id'] in [x['id'] for x in listed]
  with served.client(service, served.BOB) as bob:
    assert bob.get('/v1/states').json()['data'] == []
    assert bob.get(f'/v1/states/{made["id"]}').status_code == 404
    assert bob.delete(f'/v1/states/{made["id"]}').status_code == 404
    body = {'prompt': 'a', 'state': made['id']}
    assert bob.post('/v1/completions', json=body).status_code == 404
    response = bob.post('/v1/completions', json=body | {'state': data})
    assert response.status_code == 400
    assert 'signature' in response.json()['error']['message']
    body = {'completion': answer['id']}
    assert bob.post('/v1/states', json=body).status_code == 404
  assert client.delete(f'/v1/states/{made["id"]}').status_code == 200
  assert client.get(f'/v1/states/{made["id"]}').status_code == 404


def test_damaged_bytes_of_a_state_are_refused(client):
  made = client.post('/v1/states', json={'prompt': 'mine', 'form': 'bytes'})
  data = bytearray(base64.b64decode(made.json()['data']))
  data[len(data) // 2] ^= 1
  damaged = base64.b64encode(data).decode()
  response = client.post('/v1/completions', json={'state': damaged})
  assert response.status_code == 400
  assert response.json()['error']['param'] == 'state'


def test_turns_are_answered_as_the_model_was_trained(chat):
  messages = [{'role': 'user', 'content': 'how are you'}]
  body = {'max_tokens': 8, 'seed': 3, 'logprobs': True, 'top_logprobs': 2}
  first = chat.post(
    '/v1/chat/completions',
    json=body | {'messages': messages, 'return_state': 'id'},
  ).json()
  (choice,) = first['choices']
  assert choice['message']['role'] == 'assistant'
  assert len(choice['logprobs']['content'][0]['top_logprobs']) == 2
  messages.append(choice['message'] | {'content': 'very well'})
  messages.append({'role': 'user', 'content': [{'type': 'text', 'text': 'ok'}]})
  read = chat.post('/v1/states', json={'messages': messages[:2]}).json()
  whole, continued = (
    chat.post('/v1/chat/completions', json=body | more).json()
    for more in (
      {'messages': messages},
      {'messages': messages[2:], 'state': read['id']},
    )
  )
  assert whole['choices'] == continued['choices']
  assert continued['usage']['prompt_tokens'] < whole['usage']['prompt_tokens']
  # A reply that was cut off gets its end with the next turn.
  assert choice['finish_reason'] == 'length'
  after = chat.post(
    '/v1/chat/completions',
    json=body | {'messages': messages[2:], 'state': first['state']['id']},
  ).json()
  assert after['usage']['prompt_tokens'] == 1 + len('ok') + 1
  kept = chat.post('/v1/states', json={'completion': after['id']}).json()
  new = after['usage']['total_tokens']
  assert kept['tokens'] == first['state']['tokens'] + new
  stream = chat.post(
    '/v1/chat/completions', json=body | {'messages': messages, 'stream': True}
  )
  parts = [part['choices'][0] for part in served.events(stream.text)]
  assert parts[0]['delta']['role'] == 'assistant'
  text = ''.join(part['delta'].get('content', '') for part in parts)
  assert text == whole['choices'][0]['message']['content']


def test_roles_are_those_of_the_request():
  model = served.turns_model(chats.make(chats.LLAMA3))
  asked = service_lib.Service(model, service_lib.Options('tiny'))
  said = [('developer', 'Be brief.'), ('user', 'hi'), ('assistant', 'hello')]
  said += [('user', 'so')]
  want = ''.join(
    f'<|start|>{role.replace("developer", "system")}<|end|>\n\n{text}<|eot|>'
    for role, text in said
  )
  reply = '<|start|>assistant<|end|>\n\n'
  messages = [{'role': role, 'content': text} for role, text in said]
  chat = schemas.Chat(messages=messages)
  (job,) = plans.of_chat(asked, '', chat).jobs
  assert job.ids.tolist() == chats.ids(f'<s>{want}{reply}')
  new = schemas.NewState(messages=messages)
  job = plans.of_state(asked, '', new)
  assert job.ids.tolist() == chats.ids(f'<s>{want}')
  simple = schemas.Completions(prompt='hi')
  (job,) = plans.of_completions(asked, '', simple).jobs
  want = f'<s><|start|>user<|end|>\n\nhi<|eot|>{reply}'
  assert job.ids.tolist() == chats.ids(want)


def test_numbers_of_texts_are_those_of_the_model(client, service):
  texts = ['the gate', 'a']
  given = client.post('/v1/embeddings', json={'input': texts}).json()['data']
  expected = service.model.embed(texts)
  got = np.float32([row['embedding'] for row in given])
  np.testing.assert_array_equal(got, expected)
  encoded = client.post(
    '/v1/embeddings', json={'input': 'a', 'encoding_format': 'base64'}
  ).json()['data'][0]['embedding']
  np.testing.assert_array_equal(
    np.frombuffer(base64.b64decode(encoded), '<f4'), expected[1]
  )
  scored = client.post(
    '/v1/score', json={'input': texts, 'tokens': True, 'top_k': 1}
  ).json()['data']
  for row, score in zip(scored, service.model.score(texts), strict=True):
    assert row['loss'] == score.loss
    assert [x['id'] for x in row['each']] == score.framed.ids_L.tolist()


def test_a_classifier_has_classes(tmp_path):
  workdir = classifiers.write_texts(tmp_path / 'run')
  model = model_lib.load(workdir)
  with (
    served.service(model, tmp_path / 'states') as service,
    served.client(service) as client,
  ):
    response = client.post('/v1/classify', json={'input': ['the gate']})
    (row,) = response.json()['data']
    (expected,) = model.predict(['the gate'])
    assert row['label'] == expected.label
    assert row['probabilities'] == expected.probabilities
    assert len(
      client.post('/v1/embeddings', json={'input': 'a'}).json()['data']
    )
    response = client.post('/v1/completions', json={'prompt': 'a'})
    assert response.status_code == 400
    assert response.json()['error']['code'] == 'wrong_endpoint'
    status = client.get('/v1/status').json()
    assert status['slots'] == status['active'] == status['queued'] == 0


BAD = [
  ({'promt': 'a'}, 'promt'),
  ({'prompt': 3}, 'prompt'),
  ({'prompt': []}, 'prompt'),
  ({'prompt': [[1], 'a']}, 'prompt'),
  ({'prompt': [257]}, 'prompt'),
  ({'prompt': [-1]}, 'prompt'),
  ({'prompt': [10**40]}, 'prompt'),
  ({'prompt': '\ud800'}, 'prompt'),
  ({'n': 0}, 'n'),
  ({'n': True}, 'n'),
  ({'n': 100, 'prompt': ['a', 'b']}, 'n'),
  ({'max_tokens': 0}, 'max_tokens'),
  ({'max_tokens': 10**7}, 'max_tokens'),
  ({'max_tokens': '5'}, 'max_tokens'),
  ({'temperature': -1}, 'temperature'),
  ({'top_p': -0.1}, 'top_p'),
  ({'min_p': 2}, 'min_p'),
  ({'seed': 2**63}, 'seed'),
  ({'seed': -(2**63) - 1}, 'seed'),
  ({'stop': ['']}, 'stop'),
  ({'stop': [1]}, 'stop'),
  ({'logprobs': 21}, 'logprobs'),
  ({'logit_bias': {'x': 1}}, 'logit_bias'),
  ({'logit_bias': {'999': 1}}, 'logit_bias'),
  ({'stream_options': {}}, 'stream_options'),
  ({'best_of': 2}, 'best_of'),
  ({'response_format': {'type': 'xml'}}, 'response_format.type'),
  ({'tools': [{}]}, 'tools'),
  ({'suffix': 'x'}, 'suffix'),
  ({'state': 'state-x'}, 'state'),
  ({'state': ''}, 'state'),
  ({'return_state': 'id', 'n': 2}, 'return_state'),
]


@pytest.mark.parametrize('body, param', BAD, ids=str)
def test_a_bad_field_is_named(client, body, param):
  response = client.post(
    '/v1/completions',
    content=json.dumps(body),
    headers={'Content-Type': 'application/json'},
  )
  assert response.status_code == 400, response.text
  error = response.json()['error']
  assert error['type'] == 'invalid_request_error'
  assert error['param'] == param
  assert error['message']


def test_fields_without_effect_are_accepted(client):
  body = {'prompt': 'a', 'max_tokens': 3, 'seed': 1}
  more = {
    'user': 'u',
    'suffix': None,
    'tools': [],
    'metadata': {},
    'best_of': 1,
  }
  first, second = ask(client, **body), ask(client, **body, **more)
  assert first['choices'] == second['choices']


def test_what_is_no_request_is_refused(client, service):
  def post(content, kind='application/json'):
    return client.post(
      '/v1/completions', content=content, headers={'Content-Type': kind}
    )

  assert post('{').status_code == 400
  assert post('[]').status_code == 400
  assert post('{"temperature": NaN}').status_code == 400
  assert post('[' * 10**5).status_code == 400
  assert post(b'\xff').status_code == 400
  assert post('{}', 'text/plain').status_code == 415
  most = service.options.limits.body_bytes
  assert post(b' ' * (most + 1)).status_code == 413
  assert post(iter([b' ' * 2**20] * (most // 2**20 + 1))).status_code == 413
  assert client.get('/v1/completions').status_code == 405
  assert client.get('/nowhere').status_code == 404
  assert client.get('/page/../app.py').status_code == 404
  unknown = client.post('/v1/completions', json={'model': 'gpt-5'})
  assert unknown.status_code == 404
  assert unknown.json()['error']['code'] == 'model_not_found'
  turns = client.post(
    '/v1/chat/completions',
    json={'messages': [{'role': 'user', 'content': 'a'}]},
  )
  assert turns.json()['error']['code'] == 'wrong_endpoint'


def test_keys_open_all_but_the_page_and_health(service):
  with served.client(service) as stranger:
    for path in ('/', '/page/app.js', '/healthz', '/readyz'):
      assert stranger.get(path).status_code == 200
    for key in ('', 'Bearer', f'Basic {served.ALICE}', 'Bearer ' + 'x' * 20):
      headers = {'Authorization': key}
      for path in ('/v1/models', '/metrics', '/v1/states', '/v1/status'):
        response = stranger.get(path, headers=headers)
        assert response.status_code == 401
        assert response.headers['WWW-Authenticate'] == 'Bearer'
        known = 'invalid' if key.startswith('Bearer x') else 'missing'
        assert response.json()['error']['code'] == f'{known}_api_key'


def test_without_keys_only_names_of_this_machine_are_answered(chat):
  for host, status in (
    ('localhost', 200),
    ('127.0.0.1:8000', 200),
    ('[::1]:8000', 200),
    ('evil.example', 421),
    ('', 421),
  ):
    response = chat.get('/v1/models', headers={'Host': host})
    assert response.status_code == status, host


def test_other_origins_are_refused_unless_named(service):
  headers = {'Origin': 'https://a.example'}
  name = 'access-control-allow-origin'
  with served.client(service, served.ALICE) as client:
    assert name not in client.get('/v1/models', headers=headers).headers
  origins = ['https://a.example']
  with served.client(service, served.ALICE, origins=origins) as client:
    response = client.get('/v1/models', headers=headers)
    assert response.headers[name] == 'https://a.example'


def test_the_access_log_has_no_texts(service, tmp_path):
  path = tmp_path / 'log'
  for texts in (False, True):
    log = access_log.AccessLog(str(path), texts)
    with served.client(service, served.ALICE, log=log) as client:
      ask(client, prompt='a secret', max_tokens=3)
  first, second = map(json.loads, path.read_text().splitlines())
  assert first['owner'] == 'alice' and first['status'] == 200
  assert (first['prompt_tokens'], first['completion_tokens']) == (9, 3)
  assert 'secret' not in json.dumps(first)
  assert second['prompt'] == ['a secret']


def test_metrics_count(client):
  def count(name):
    lines = client.get('/metrics').text.splitlines()
    return sum(
      float(line.rpartition(' ')[2]) for line in lines if line.startswith(name)
    )

  name = 'rnn_jax_new_tokens_total'
  before = count(name)
  ask(client, prompt='a', max_tokens=7, ignore_eos=True)
  assert count(name) - before == 7
  assert count('rnn_jax_slots') == served.ENGINE.slots
  answered = 'rnn_jax_requests_total{route="/v1/completions",status="200"}'
  assert count(answered) > 0


def test_time_over_ends_a_text(tmp_path, workdir):
  model = model_lib.load(workdir)
  with (
    served.service(model, tmp_path, seconds=0.5) as service,
    served.client(service) as client,
  ):
    (choice,) = ask(
      client, prompt='a', max_tokens=served.FOREVER, ignore_eos=True
    )['choices']
    assert choice['stop_reason'] == 'deadline'
    assert choice['finish_reason'] == 'length'
    assert choice['text']


def test_a_reload_drops_no_request(service, client):
  body = {'prompt': 'a', 'max_tokens': 30, 'seed': 7, 'ignore_eos': True}
  before = ask(client, **body)
  assert client.post('/admin/reload', json={}).status_code == 403
  with served.client(service, served.OPS) as ops:
    response = ops.post('/admin/reload', json={'checkpoint': 99})
    assert response.status_code == 400
    assert ask(client, **body)['choices'] == before['choices']
    made = client.post('/v1/states', json={'prompt': 'a'}).json()
    response = ops.post('/admin/reload', json={'checkpoint': 3})
    assert response.json() == {'object': 'reload', 'step': 3}
    after = ask(client, **body)
    assert after['choices'] != before['choices']
    assert after['system_fingerprint'] != before['system_fingerprint']
    response = client.post('/v1/completions', json={'state': made['id']})
    assert response.status_code == 400
    assert not client.get(f'/v1/states/{made["id"]}').json()['current']
    assert ops.post('/admin/reload', json={'checkpoint': 2}).status_code == 200
  assert ask(client, **body)['choices'] == before['choices']


def test_bytes_that_are_no_characters_are_shown(client):
  token = 0xE2
  answer = ask(
    client, prompt='a', max_tokens=1, logprobs=1, logit_bias={str(token): 100}
  )
  assert tokenizer_lib.Bytes().decode([token]) == '�'
  assert answer['choices'][0]['logprobs']['tokens'] == ['bytes:\\xe2']
