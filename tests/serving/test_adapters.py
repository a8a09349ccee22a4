"""Requests for several adapters of one model, which share its slots."""

import dataclasses
import random

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import sampling
from rnn_jax.serving import engine
from rnn_jax.serving import requests
from rnn_jax.serving import states
from tests.inference import test_row_adapters as rows
from tests.serving import models
from tests.support import bundles

KEY = b'k' * 32
COUNT = 30
NAMES = '', 'x', 'y'
PREFIXES = ('abcdef gh' * 3,)


@pytest.fixture(scope='module', name='bundle')
def _bundle():
  raw = rows.raw_config(layers=1)
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  return bundles.make(raw, models.CHARACTERS)


@pytest.fixture(scope='module', name='adapters')
def _adapters(bundle):
  """Two adapters; the second was trained on turns."""
  second = rows.adapter(bundle, 2, rank=3, targets=('.*/up/kernel',))
  task = config_lib.load('tasks', 'dialogue', 'task.name').Config()
  config = dataclasses.replace(second.config, task=task)
  second = dataclasses.replace(second, config=config)
  return {'x': rows.adapter(bundle, 1), 'y': second}


def make(bundle, adapters, **options):
  """An Engine with small programs."""
  values = {'slots': 4, 'steps': models.STEPS, 'chunks': models.CHUNKS}
  values |= {'read_seconds': 0.0} | options
  return engine.Engine(bundle, engine.Options(**values), adapters)


@pytest.fixture(scope='module', name='served')
def _served(bundle, adapters):
  return make(bundle, adapters)


def draw(seed, **changes):
  name = NAMES[seed % len(NAMES)]
  return models.draw(seed, PREFIXES, adapter=name, **changes)


def summed(bundle, adapter):
  """The model with an adapter, as one of its own."""
  params = rows.summed(bundle, adapter)
  config = dataclasses.replace(bundle.config, task=adapter.config.task)
  return dataclasses.replace(bundle, config=config, params=params)


def write(served, request):
  """The completion of a request."""
  prompt, options = request
  (reply,) = served.generate([prompt], options)
  return reply.completions[0]


def test_a_request_is_the_same_among_others_adapters(bundle, adapters, served):
  alone = make(bundle, adapters, prefix_bytes=0)
  wanted = [(r, models.alone(alone, r)) for r in map(draw, range(COUNT))]
  for seed in range(2):  # the second time the store is warm
    rng = random.Random(seed)
    order = [*enumerate(wanted)]
    rng.shuffle(order)
    handles = {}
    while order or not all(handle.done for handle in handles.values()):
      for _ in range(min(rng.choice((0, 1, 3)), len(order))):
        index, (request, _) = order.pop()
        handles[index] = models.submit(served, request)
      served.step()
    for index, handle in handles.items():
      assert models.record(handle) == wanted[index][1], wanted[index][0]
  assert served.stats().prefixes.hits > COUNT / 2


@pytest.mark.native
def test_drafts_of_an_adapter_change_no_bit(bundle, adapters, served):
  drafting = make(bundle, adapters, slots=1, draft_tokens=3)
  for name in NAMES:
    request = models.ask(
      'abcabc',
      max_new_tokens=40,
      sampling=sampling.Sampling(0.0),
      stop_at_boundary=False,
      adapter=name,
    )
    before = drafting.stats()
    assert models.alone(drafting, request) == models.alone(served, request)
    assert drafting.stats().draft_runs - before.draft_runs < 40


@pytest.mark.parametrize('name', ('x', 'y'))
def test_an_adapter_writes_as_the_model_with_the_sums(
  bundle, adapters, served, name
):
  own = engine.Engine(summed(bundle, adapters[name]), served.options)
  other = False
  for seed in range(6):
    request = models.ask(
      'fed cab', max_new_tokens=12, seed=seed, stop_at_boundary=False
    )
    got, want, base = (
      write(each, models.changed(request, adapter=adapter))
      for each, adapter in ((served, name), (own, ''), (served, ''))
    )
    assert got.tokens == want.tokens
    np.testing.assert_allclose(got.logprobs, want.logprobs, 0, 2e-5)
    other |= got.tokens != base.tokens
  assert other


def test_a_beginning_is_read_for_each_adapter(served):
  prompt = 'hgfedcba' * 2
  for cached in (0, len(prompt)):
    for name in NAMES:
      request = requests.Options(max_new_tokens=1, adapter=name)
      (reply,) = served.generate([prompt], request)
      # What asks may know the boundary before any question.
      assert (
        reply.cached_tokens >= cached if cached else reply.cached_tokens < 2
      )


def test_a_state_is_of_its_adapter(bundle, adapters, served):
  asked = requests.Options(max_new_tokens=5, returns_state=True, adapter='x')
  (reply,) = served.generate(['abc'], asked)
  data = states.dump(reply.state, KEY)
  other = make(bundle, adapters)
  state = other.model('x').load_state(data, KEY)
  after = models.ask('de', max_new_tokens=9, state=state, adapter='x')
  assert models.alone(other, after) == models.alone(served, after)
  with pytest.raises(errors.InputError, match="it is that of 'x': ask that"):
    served.model().load_state(data, KEY)
  with pytest.raises(errors.InputError, match="it is that of 'x': ask that"):
    models.submit(served, models.changed(after, adapter='y'))
  base = dataclasses.replace(asked, adapter='')
  (reply,) = served.generate(['abc'], base)
  with pytest.raises(errors.InputError, match='it has no adapter: ask that'):
    models.submit(served, models.changed(after, state=reply.state))


def test_turns_are_an_adapters_own(served):
  assert [served.model(name).prompts.asks for name in NAMES] == [
    False,
    False,
    True,
  ]
  said = turns.alternate(['abc'])
  ids = served.model('y').prompts.encode_turns(said)
  assert ids[0] == ids[-1] == models.CHARACTERS.boundary
  with pytest.raises(errors.InputError, match="wasn't trained on turns"):
    served.model('x').prompts.encode_turns(said)
  with pytest.raises(
    errors.InputError, match=r"adapter='z': give one of \('x'"
  ):
    models.submit(served, models.ask('abc', adapter='z'))


def test_matrices_in_8_bits_have_adapters(bundle, adapters):
  trained = rows.adapter(bundle, 1, base='int8')
  with pytest.raises(errors.InputError, match="weights='float32': 'x' was"):
    make(bundle, {'x': trained})
  adapters = adapters | {'x': trained}
  served = make(bundle, adapters, weights='int8')
  rounded = rows.rounded(bundle)
  request = models.ask('fed cab', max_new_tokens=12, seed=1, adapter='x')
  own = engine.Engine(
    summed(rounded, adapters['x']),
    dataclasses.replace(served.options, weights='float32'),
  )
  got = write(served, request)
  want = write(own, models.changed(request, adapter=''))
  assert got.tokens == want.tokens
  # Products with matrices in 8 bits round their other factor to 16 bits.
  np.testing.assert_allclose(got.logprobs, want.logprobs, 0, 3e-4)


def test_new_adapters_serve_new_requests(bundle, adapters):
  served = make(bundle, adapters)
  new = adapters | {'x': rows.adapter(bundle, 5)}
  request = models.ask('abc', max_new_tokens=30, seed=1, adapter='x')
  before = models.alone(served, request)
  digest = served.model('x').digest
  done = served.reload(bundle, new)
  assert models.alone(served, request) != before
  assert done.result(0) is None
  assert served.model('x').digest != digest
  for wrong in ({}, {'z': new['x'], 'y': new['y']}):
    with pytest.raises(errors.InputError, match='reload: the model differs'):
      served.reload(bundle, wrong)
