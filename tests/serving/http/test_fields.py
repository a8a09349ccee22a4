"""What clients of OpenAI's API send, field by field, in process."""

import json

import numpy as np
import pytest

from rnn_jax.serving.http import answers
from rnn_jax.serving.http import schemas
from tests.faults import bodies
from tests.serving.http import served

SECRET = 'a secret of the client '
USER = {'role': 'user', 'content': 'a'}


@pytest.fixture(name='service', scope='module')
def _service(tmp_path_factory):
  folder = tmp_path_factory.mktemp('turns')
  with served.service(served.turns_model(), folder) as service:
    yield service


@pytest.fixture(name='client', scope='module')
def _client(service):
  with served.client(service) as client:
    yield client


def post(client, path, body):
  """The response to a body that JSON can hold."""
  return client.post(
    path,
    content=json.dumps(body),
    headers={'Content-Type': 'application/json'},
  )


def complete(client, **body):
  """The choices of an answer."""
  response = post(client, '/v1/completions', {'max_tokens': 6} | body)
  assert response.status_code == 200, response.text
  return response.json()['choices']


@pytest.mark.parametrize(
  'tokens, places',
  [
    (b'\xc3 \xa9 a', [0, 0, 1]),
    (b'\xf0 \x9f \x98 \x80 a', [0, 0, 0, 0, 1]),
    (b'ab c\xc3\xa9d e', [0, 2, 5]),
    (b'\xe2 a b', [0, 1, 2]),  # a character that is cut off
    (b'\xe2 \xe2\x82 \xac', [0, 1, 1]),
    (b'\x80 \x80 a', [0, 1, 2]),
    (b' \xc3 \xa9', [0, 0, 0]),
  ],
)
def test_tokens_have_places_in_the_text(tokens, places):
  pieces, where = tokens.split(b' '), answers._Places(0)
  assert [where.next(piece) for piece in pieces] == places
  text = b''.join(pieces).decode(errors='replace')
  assert places == sorted(places) and places[-1] <= len(text)


@pytest.mark.parametrize('prompt', ['\u00e9', '\U0001f600a', 'a\u00e9b'])
def test_offsets_cut_the_text_at_its_tokens(client, prompt):
  (choice,) = complete(
    client, prompt=prompt, echo=True, logprobs=0, max_tokens=4,
    logit_bias={str(ord('x')): 100}, continues=False,
  )  # fmt: skip
  offsets = choice['logprobs']['text_offset']
  raw = prompt.encode()
  want = [len(raw[:n].decode(errors='ignore')) for n in range(len(raw))]
  assert offsets[: len(raw)] == want
  assert offsets[-4:] == [len(prompt) + n for n in range(4)]
  assert choice['text'] == prompt + 'xxxx'


def test_a_seed_has_64_bits(client):
  def text(seed):
    return complete(client, prompt='a', seed=seed, max_tokens=20)[0]['text']

  seeds = [5, 5 + 2**32, 5 + 2**33, 5 - 2**63, -1, 2**32 - 1, 2**63 - 1]
  texts = [text(seed) for seed in seeds]
  assert len({*texts}) == len(seeds)
  assert [text(seed) for seed in seeds] == texts


def test_no_nucleus_is_the_most_likely_token(client):
  best, nucleus = (
    complete(client, prompt='a', seed=1, **more)[0]['text']
    for more in ({'temperature': 0}, {'top_p': 0})
  )
  assert best == nucleus


NULLS = (
  'best_of', 'echo', 'frequency_penalty', 'logit_bias', 'logprobs', 'n',
  'presence_penalty', 'response_format', 'seed', 'stop', 'stream',
  'stream_options', 'suffix', 'temperature', 'top_p', 'user', 'model',
  'max_tokens', 'audio', 'tools', 'tool_choice', 'state', 'guided_json',
)  # fmt: skip


def test_null_is_no_field(client):
  body = {'prompt': 'a', 'temperature': 0}
  want = complete(client, **body, max_tokens=16)
  nulls = dict.fromkeys(NULLS) | body
  assert complete(client, **nulls) == want
  empty = {'stop': '', 'tools': [], 'functions': [], 'logit_bias': {}}
  assert complete(client, **body, **empty, max_tokens=16) == want
  stream = {'stream': True, 'stream_options': {'include_usage': None}}
  response = post(client, '/v1/completions', body | stream)
  texts = [x['choices'][0]['text'] for x in served.events(response.text)]
  assert ''.join(texts) == want[0]['text']
  nothing = post(client, '/v1/completions', {'prompt': None, 'max_tokens': 1})
  assert nothing.status_code == 200


@pytest.mark.parametrize(
  'answer',
  [
    {'content': ''},
    {'content': ' \n'},
    {'content': None, 'refusal': None, 'annotations': None, 'audio': None,
     'function_call': None, 'tool_calls': None},
    {'content': '', 'annotations': [], 'tool_calls': [], 'name': None},
    {'content': [{'type': 'text', 'text': '', 'annotations': []}]},
    {},
  ],
)  # fmt: skip
def test_an_own_answer_is_read_again(client, answer):
  said = [{'role': 'system', 'content': ''}, USER]
  turns = [*said, answer | {'role': 'assistant'}, USER]
  body = {'messages': turns, 'max_tokens': 2}
  response = post(client, '/v1/chat/completions', body)
  assert response.status_code == 200, response.text
  # Each turn has its ids and a boundary, and one is before the first.
  assert response.json()['usage']['prompt_tokens'] == 1 + 1 + 2 + 1 + 2
  read = post(client, '/v1/states', {'messages': turns[:3]})
  assert read.json()['tokens'] == 1 + 1 + 2 + 1


def test_a_message_without_words_is_named(client):
  for message, param in (
    ({'role': 'user'}, 'messages.0.content'),
    ({'role': 'user', 'content': None}, 'messages.0.content'),
    ({'role': 'assistant', 'tool_calls': [{}]}, 'messages.0.tool_calls'),
    ({'role': 'user', 'content': 'a', 'x': 1}, 'messages.0.x'),
  ):
    body = {'messages': [message, USER]}
    response = post(client, '/v1/chat/completions', body)
    assert response.status_code == 400
    assert response.json()['error']['param'] == param


@pytest.mark.parametrize(
  'path, body, param',
  [
    ('completions', {'prompt': SECRET, 'stream_options': {}}, 'stream_options'),
    ('completions', {'prompt': SECRET, 'best_of': 2}, 'best_of'),
    ('completions', {'prompt': [SECRET, 1]}, 'prompt'),
    ('completions', {'prompt': {'a': SECRET}}, 'prompt'),
    ('completions', {'prompt': SECRET * 3 + '\ud800'}, 'prompt'),
    ('completions', {'prompt': 'a', 'stop': [SECRET, 1]}, 'stop'),
    ('chat/completions',
     {'messages': [{'role': 'user', 'content': SECRET}], 'top_logprobs': 1},
     'top_logprobs'),
    ('chat/completions',
     {'messages': [{'role': 'user', 'content': [SECRET]}]},
     'messages.0.content'),
    ('chat/completions',
     {'messages': [USER | {'content': SECRET}], 'max_tokens': 1,
      'max_completion_tokens': 1}, 'max_tokens'),
    ('states', {'prompt': SECRET, 'messages': [USER]}, 'messages'),
    ('states', {'completion': SECRET, 'state': SECRET}, 'state'),
    ('score', {'input': [SECRET, 1]}, 'input'),
  ],
)  # fmt: skip
def test_an_error_names_a_field_and_quotes_no_text(client, path, body, param):
  response = post(client, f'/v1/{path}', body)
  assert response.status_code == 400, response.text
  assert response.json()['error']['param'] == param
  assert SECRET.strip() not in response.text


def test_a_constraint_that_fails_later_names_its_field(client):
  body = {'prompt': 'a', 'max_tokens': 4, 'guided_json': {'$ref': '#'}}
  response = post(client, '/v1/completions', body)
  assert response.status_code == 400
  error = response.json()['error']
  assert error['param'] == 'guided_json'
  assert error['message'].startswith('guided_json: it takes more than a server')
  streamed = post(client, '/v1/completions', body | {'stream': True})
  assert served.events(streamed.text)[-1]['error'] == error


def test_a_prompt_begins_a_text_however_it_is_given(tmp_path):
  from rnn_jax.inference import model as model_lib
  from tests.inference import runs

  model = model_lib.load(runs.make(tmp_path / 'run'))
  boundary = model.bundle.tokenizer.boundary
  with (
    served.service(model, tmp_path / 'states') as service,
    served.client(service) as client,
  ):
    ids = [*map(int, model.bundle.tokenizer.encode('the gate'))]
    whole = {'echo': True, 'logprobs': 1, 'temperature': 0}
    text, tokens, begun, within = (
      complete(client, prompt=prompt, **whole, **more)[0]
      for prompt, more in (
        ('the gate', {}),
        (ids, {}),
        ([boundary, *ids], {}),
        (ids, {'continues': True}),
      )
    )
  assert tokens == text
  # What the client sent is listed, whatever it is.
  assert begun['text'] == text['text']
  for name, values in text['logprobs'].items():
    assert begun['logprobs'][name][1:] == values
  assert begun['logprobs']['token_logprobs'][0] is None
  assert within['logprobs']['token_logprobs'][0] is None
  some = within['logprobs']['token_logprobs'][1:8]
  assert not np.array_equal(some, text['logprobs']['token_logprobs'][1:8])


def test_more_prompts_than_may_wait_are_refused_for_good(client):
  most = served.ENGINE.queue
  body = {'prompt': ['a'] * (most + 1), 'max_tokens': 1}
  response = post(client, '/v1/completions', body)
  assert response.status_code == 400
  error = response.json()['error']
  assert error['param'] == 'prompt' and f'at most {most}' in error['message']
  assert len(complete(client, prompt=['a'] * most, max_tokens=1)) == most


def test_embeddings_are_of_tokens_too(client):
  rows = [
    post(client, '/v1/embeddings', {'input': given}).json()['data']
    for given in ('ab', [97, 98], [[97, 98]], ['ab'])
  ]
  assert all(row == rows[0] for row in rows)
  for wrong in ([256], [[97], 'a'], [10**9], [[]], [195]):
    response = post(client, '/v1/embeddings', {'input': wrong})
    assert response.status_code == 400
    assert response.json()['error']['param'] == 'input'


def test_the_description_of_the_api_has_every_field(client):
  described = client.get('/openapi.json').json()
  assert described['openapi'].startswith('3.1')
  forms = described['components']['schemas']
  for path, form in bodies.FORMS.items():
    body = described['paths'][path]['post']['requestBody']['content']
    name = body['application/json']['schema']['$ref'].rpartition('/')[2]
    fields = forms[name]['properties']
    assert {*form} - {*fields} <= {*schemas.NEUTRAL, *schemas.NO_EFFECT}
    for field in fields.values():
      assert {'type', 'anyOf', '$ref'} & {*field}, field
  texts = forms['Classify']['properties']['input']['anyOf']
  assert [each['type'] for each in texts] == ['string', 'array']
  assert forms['Classify']['required'] == ['input']
