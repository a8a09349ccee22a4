"""Texts that follow a grammar."""

import json
import re
import sys

import numpy as np
import pytest
import tokenizers

from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text import tokenizer_training
from rnn_jax.inference import sampling
from rnn_jax.serving import constraint
from rnn_jax.serving import requests
from tests.serving import models

SCHEMA = json.dumps(
  {
    'type': 'object',
    'properties': {
      'a': {'type': 'integer', 'minimum': 0, 'maximum': 99},
      'b': {'enum': ['ab', 'cd']},
    },
    'required': ['a', 'b'],
    'additionalProperties': False,
  }
)
EXPRESSION = '[0-9]{2,4}(ab|cd){1,4}'


@pytest.fixture(scope='module', name='served')
def _served():
  return models.make(models.generator())


def byte_pairs():
  """A byte-level BPE with merges that cross JSON's structure."""
  names = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  merges = [('"', ':'), ('a', 'b'), ('"', 'ab'), ('1', '2')]
  names += [''.join(pair) for pair in merges]
  return tokenizer_training.byte_pairs(
    {x: n for n, x in enumerate(names)}, merges
  )


@pytest.mark.parametrize(
  'kind',
  (tokenizer.Bytes(), models.CHARACTERS, byte_pairs()),
  ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize('name', ('json_schema', 'regex'))
def test_random_allowed_tokens_make_a_text_of_the_grammar(kind, name):
  grammar = {'json_schema': SCHEMA, 'regex': EXPRESSION}[name]
  first = constraint.Grammars(kind).matcher(
    constraint.Constraint(name, grammar)
  )
  rng = np.random.default_rng(0)
  for _ in range(5):
    matcher, ids = first.copy(), []
    while kind.boundary not in ids:
      bits = np.unpackbits(matcher.allowed().view(np.uint8), bitorder='little')
      ids.append(int(rng.choice(np.flatnonzero(bits[: kind.size]))))
      matcher.read(ids[-1:])
    text = kind.decode(ids)
    if name == 'regex':
      assert re.fullmatch(EXPRESSION, text)
    else:
      value = json.loads(text)
      assert value['b'] in ('ab', 'cd') and 0 <= value['a'] <= 99
  with pytest.raises(RuntimeError, match='outside the grammar'):
    first.copy().read([kind.encode('b')[0]])


def test_a_served_text_follows_its_constraint(served):
  asked = [
    models.ask(
      'ab',
      n=2,
      max_new_tokens=200,
      seed=seed,
      alternatives=2,
      sampling=sampling.Sampling(temperature=temperature),
      constraint=constraint.Constraint(*rule),
    )
    for seed, temperature in ((1, 1.0), (2, 0.5))
    for rule in (('json_schema', SCHEMA), ('regex', EXPRESSION))
  ]
  alone = [models.alone(served, request) for request in asked]
  free = models.draw(5, max_new_tokens=20)
  free_alone = models.alone(served, free)
  handles = [models.submit(served, request) for request in (*asked, free)]
  models.finish(served, handles)
  records = [models.record(handle) for handle in handles]
  assert records == [*alone, free_alone]
  for request, (_, texts) in zip(asked, alone, strict=True):
    for text, _, reason in texts:
      assert reason == 'boundary'
      if request[1].constraint.kind == 'regex':
        assert re.fullmatch(EXPRESSION, text)
      else:
        assert json.loads(text).keys() == {'a', 'b'}
  # They share a prompt and not the random numbers.
  assert alone[1][1][0] != alone[1][1][1]


@pytest.mark.parametrize(
  'kind',
  (models.CHARACTERS, byte_pairs()),
  ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize('name', ('json_schema', 'regex'))
def test_forced_tokens_are_those_that_steps_find(kind, name):
  grammar = {'json_schema': SCHEMA, 'regex': 'a(b|c)defg'}[name]
  matcher = constraint.Grammars(kind).matcher(
    constraint.Constraint(name, grammar)
  )
  rng, token, several = np.random.default_rng(0), -1, 0
  while token != kind.boundary:
    forced, ahead = matcher.forced(4), matcher.copy()
    several += len(forced) > 1
    for n in range(4):
      bits = np.unpackbits(ahead.allowed().view(np.uint8), bitorder='little')
      allowed = np.flatnonzero(bits)
      assert allowed.tolist() == forced[n : n + 1] or n >= len(forced)
      assert n < len(forced) or len(allowed) > 1
      if n >= len(forced) or kind.boundary in allowed:
        break
      ahead.read(forced[n : n + 1])
    bits = np.unpackbits(matcher.allowed().view(np.uint8), bitorder='little')
    token = int(rng.choice(np.flatnonzero(bits)))
    matcher.read([token])
  assert several > 1


@pytest.mark.native
def test_forced_tokens_are_checked_together(served):
  """And unconstrained rows beside them draft, too: the bits are the same."""
  drafting = models.make(models.generator(), slots=2, draft_tokens=3)
  asked = [
    models.ask(
      'ab',
      n=2,
      max_new_tokens=60,
      seed=seed,
      alternatives=2,
      sampling=settings,
      constraint=constraint.Constraint(*rule),
    )
    for seed, settings in (
      (1, sampling.Sampling(0.7)),
      (2, sampling.Sampling(0.7, repetition_penalty=1.3)),
    )
    for rule in (('json_schema', SCHEMA), ('regex', EXPRESSION))
  ]
  asked.append(models.draw(5, max_new_tokens=20))
  wanted = [models.alone(served, request) for request in asked]
  before = served.stats().calls
  models.alone(served, asked[0])
  calls = served.stats().calls - before
  assert models.alone(drafting, asked[0]) == wanted[0]
  assert drafting.stats().calls < 0.7 * calls
  handles = [models.submit(drafting, request) for request in asked]
  models.finish(drafting, handles)
  assert [models.record(handle) for handle in handles] == wanted


def test_bad_constraints_are_refused(served):
  for rule, message in (
    (('xml', ''), 'constraint.kind='),
    (('json_schema', '{'), "isn't JSON"),
    (('regex', 'a' * 100_001), '100,001 characters'),
  ):
    with pytest.raises(errors.InputError, match=message):
      constraint.Constraint(*rule)
  for rule in (('regex', '('), ('json_schema', '{"type": "nonsense"}')):
    with pytest.raises(errors.InputError, match="llguidance can't follow it"):
      models.submit(served, models.ask(constraint=constraint.Constraint(*rule)))
  rule = constraint.Constraint('regex', 'a')
  for changes in ({'min_new_tokens': 1}, {'stop_at_boundary': False}):
    with pytest.raises(errors.InputError, match='constrain'):
      requests.Options(constraint=rule, **changes)
  with pytest.raises(errors.InputError, match="'numbers' of this model loses"):
    constraint.Grammars(tokenizer.Numbers(9)).matcher(rule)


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'llguidance', None)
  grammars = constraint.Grammars(models.CHARACTERS)
  with pytest.raises(errors.InputError, match=r'rnn_jax\[constrain\]'):
    grammars.matcher(constraint.Constraint('regex', 'a'))


def recursive(**changes):
  inner = {'$ref': '#/$defs/a'}
  return json.dumps({**inner, '$defs': {'a': changes}})


@pytest.mark.parametrize(
  ('grammar', 'words'),
  (
    ('[' * 50_000, 'nested more than 64 levels deep'),
    ('[' * 49_000 + ']' * 49_000, 'nested more than 64 levels deep'),
    ('{"not": ' * 100 + '{}' + '}' * 100, 'nested more than 64 levels deep'),
    (
      json.dumps({'allOf': [{'pattern': f'.*a.{{{n}}}'} for n in range(30)]}),
      'an allOf with more than 4 patterns',
    ),
  ),
)
def test_a_schema_that_explodes_is_refused(grammar, words):
  with pytest.raises(errors.InputError, match=words) as refused:
    constraint.Constraint('json_schema', grammar)
  assert str(refused.value).startswith('constraint.grammar')
  assert '[[' not in str(refused.value) and '{"' not in str(refused.value)


def test_a_recursion_without_an_end_is_refused_while_it_is_read():
  kind = tokenizer.Bytes()
  schema = recursive(
    type='object',
    properties={'secret': {'$ref': '#/$defs/a'}},
    required=['secret'],
  )
  matcher = constraint.Grammars(kind).matcher(
    constraint.Constraint('json_schema', schema)
  )
  with pytest.raises(errors.InputError, match='more than a server') as refused:
    matcher.allowed()
    matcher.read(kind.encode('{'))
    matcher.allowed()
  assert 'secret' not in str(refused.value)
  # One with an end is followed.
  schema = recursive(type='array', items={'$ref': '#/$defs/a'})
  matcher = constraint.Grammars(kind).matcher(
    constraint.Constraint('json_schema', schema)
  )
  matcher.read(kind.encode('[[],[[]]]'))


@pytest.mark.parametrize(
  'grammar',
  (
    '{"$ref": "#"}',
    recursive(
      type='object',
      properties={'secret': {'$ref': '#/$defs/a'}},
      required=['secret'],
    ),
  ),
  ids=('at its first token', 'later'),
)
def test_a_grammar_that_fails_ends_its_request_only(served, caplog, grammar):
  free = models.draw(5, max_new_tokens=20)
  failing = models.draw(
    6,
    n=2,
    max_new_tokens=20,
    constraint=constraint.Constraint('json_schema', grammar),
  )
  alone = models.alone(served, free)
  handles = [models.submit(served, each) for each in (free, failing, free)]
  models.finish(served, handles)
  assert [models.record(handles[0]), models.record(handles[2])] == [alone] * 2
  with pytest.raises(errors.InputError, match='more than a server'):
    handles[1].result()
  assert 'defect' not in caplog.text
