"""States as bytes."""

import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.serving import states
from tests.serving import models

KEY = b'k' * 32


def generator(**options):
  return models.generator('hybrid', states='bfloat16', **options)


@pytest.fixture(scope='module', name='served')
def _served():
  return models.make(generator())


@pytest.fixture(scope='module', name='other')
def _other():
  """Another process's engine, so to speak."""
  return models.make(generator(), prefix_bytes=0)


def ask(served, prompt, **changes):
  handle = models.submit(served, models.ask(prompt, **changes))
  models.finish(served, [handle])
  return handle


@pytest.fixture(scope='module', name='reply')
def _reply(served):
  return ask(
    served, 'abc def', max_new_tokens=9, returns_state=True, seed=3
  ).result()


def test_a_state_continues_in_another_engine(served, other, reply):
  data = states.dump(reply.state, KEY)
  read = other.model().load_state(data, KEY)
  assert jnp.bfloat16 in [x.dtype for x in read.leaves]
  assert models.bits(read.leaves) == models.bits(reply.state.leaves)
  records = [
    models.record(ask(engine, 'gh', state=state, n=2, max_new_tokens=12))
    for engine, state in ((served, reply.state), (other, read))
  ]
  assert records[0] == records[1]
  assert records[0] != models.record(ask(other, 'gh', n=2, max_new_tokens=12))


def test_a_state_is_that_of_reading_its_text(served, other, reply):
  """It is read in the same chunks as the whole text, not decoded."""
  ids = np.concatenate(
    [
      served.model().prompts.encode('abc def'),
      np.array(reply.completions[0].tokens, np.int32),
    ]
  )
  read = ask(other, ids, max_new_tokens=0, returns_state=True).result()
  assert read.state.text == reply.state.text
  assert read.state.count == reply.state.count == len(ids)
  assert models.bits(read.state.leaves) == models.bits(reply.state.leaves)
  assert models.bits(read.state.logits_1xV) == models.bits(
    reply.state.logits_1xV
  )
  assert read.completions[0].tokens == ()


def test_an_empty_prompt_continues_a_state(other, reply):
  whole = ask(
    other, '', state=reply.state, max_new_tokens=5, stop_at_boundary=False
  ).result()
  assert len(whole.completions[0].tokens) == 5
  assert whole.prompt_tokens == 0


def test_damaged_bytes_are_refused(served, reply):
  data = states.dump(reply.state, KEY)
  for place in range(0, len(data), 37):
    damaged = bytearray(data)
    damaged[place] ^= 1
    with pytest.raises(errors.InputError, match='signature is wrong'):
      served.model().load_state(bytes(damaged), KEY)
  for cut in (0, 1, 31, 40, len(data) - 1):
    with pytest.raises(errors.InputError, match='signature is wrong'):
      served.model().load_state(data[:cut], KEY)


def test_other_keys_and_models_are_refused(served, reply):
  data = states.dump(reply.state, KEY)
  with pytest.raises(errors.InputError, match='signature is wrong'):
    served.model().load_state(data, b'x' * 32)
  for key in (b'', ''):
    with pytest.raises(errors.InputError, match='key='):
      states.dump(reply.state, key)
  foreign = models.make(generator(seed=1))
  with pytest.raises(errors.InputError, match='state of model'):
    foreign.model().load_state(data, KEY)
  with pytest.raises(errors.InputError, match='state of model'):
    models.submit(foreign, models.ask('a', state=reply.state))


def test_a_digest_depends_on_values_shapes_and_facts():
  params = {'a': np.zeros((2, 3), np.float32), 'b': np.float32(1)}
  same = states.digest({**params}, 'x', 'y')
  assert states.digest(params, 'x', 'y') == same
  changed = [
    states.digest(params, 'xy'),
    states.digest(params | {'b': np.float32(2)}, 'x', 'y'),
    states.digest(params | {'a': np.zeros((3, 2), np.float32)}, 'x', 'y'),
    states.digest({'a': params['a'], 'c': params['b']}, 'x', 'y'),
  ]
  assert len({same, *changed}) == 5
