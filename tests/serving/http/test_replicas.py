"""Two servers that share states: either answers the next turn."""

import contextlib

import pytest

from tests.serving import redis_server
from tests.serving.http import served

ASK = {'max_tokens': 12, 'seed': 4, 'return_state': 'id', 'logprobs': True}


def say(client, text, **more):
  """The answer to a turn."""
  turn = {'messages': [{'role': 'user', 'content': text}]}
  response = client.post('/v1/chat/completions', json=ASK | turn | more)
  assert response.status_code == 200, response.text
  return response.json()


@pytest.mark.parametrize('place', ['redis', 'folder'])
def test_a_conversation_moves_from_one_server_to_another(tmp_path, place):
  with contextlib.ExitStack() as stack:
    shared = tmp_path / 'states'
    if place == 'redis':
      shared = stack.enter_context(redis_server.started(tmp_path))
    with (
      served.service(served.turns_model(), shared) as first,
      served.service(served.turns_model(), shared) as second,
      served.client(first) as one,
      served.client(second) as other,
    ):
      state = say(one, 'how are you')['state']['id']
      stayed = say(one, 'where is it', state=state)
      moved = say(other, 'where is it', state=state)
      assert moved['choices'] == stayed['choices']
      assert moved['choices'][0]['message']['content']
      last = say(one, 'over there', state=moved['state']['id'])
      again = say(other, 'over there', state=stayed['state']['id'])
      assert last['choices'] == again['choices']
      assert other.delete(f'/v1/states/{state}').status_code == 200
      assert one.get(f'/v1/states/{state}').status_code == 404
