"""Texts that a small model drafts are those of the large one, to the bit."""

import copy
import dataclasses

import pytest

from rnn_jax import errors
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from tests.serving import models
from tests.support import chats

pytestmark = pytest.mark.native
PROMPTS = 'abcabcab', 'a', 'ghghgh'
GREEDY, WARM = sampling.Sampling(0.0), sampling.Sampling(0.7, top_k=5)


def make(draft=None, asks=False):
  """A generator; `draft`: the cell of the small model."""
  made = copy.copy(models.generator(asks=asks, weights='int8'))
  if draft:
    made.draft_by(models.generator(draft, weights='int8'), 'runs/small')
  return made


@pytest.fixture(scope='module', name='plain')
def _plain():
  return make()


@pytest.mark.parametrize('settings', (GREEDY, WARM), ids=repr)
def test_another_model_drafts_with_the_same_bits(plain, settings):
  """Its state has layers of several kinds, and most of its drafts are wrong."""
  options = {'max_new_tokens': 30, 'sampling': settings, 'stop': ('aa', '9')}
  wanted = plain.generate(PROMPTS, generate.Options(**options))
  drafted = generate.Options(draft_tokens=3, **options)
  got = make('hybrid').generate(PROMPTS, drafted)
  assert got.completions == wanted.completions
  assert got.timing.draft_calls > 0


def test_a_model_drafts_for_itself_without_an_error(plain):
  """Greedy or sampled, each run of the model makes a whole draft."""
  same = make('simple_rnn')
  for settings in (GREEDY, WARM):
    options = {'max_new_tokens': 40, 'sampling': settings}
    options['stop_at_boundary'] = False
    wanted = plain.generate(['abc'], generate.Options(**options))
    got = same.generate(['abc'], generate.Options(draft_tokens=3, **options))
    assert got.completions == wanted.completions
    assert got.timing.draft_calls == 40 / (3 + 1)


def test_a_conversation_is_drafted_turn_by_turn():
  """The small model reads each turn, too, and is taken back with the other."""
  options = generate.Options(12, WARM)
  drafted = dataclasses.replace(options, draft_tokens=3)
  talks = [
    conversation.Conversation(make(asks=True), options),
    conversation.Conversation(make('simple_rnn', True), drafted),
  ]
  said = []
  for talk in talks:
    replies = [talk.say('abc'), talk.say('de'), talk.again()]
    talk.back()
    said.append([*replies, talk.say('fgh')])
  assert said[0] == said[1]


@pytest.mark.parametrize(
  ('small', 'message'),
  (
    ({'cell': 'positions'}, 'it has learned positions for 40 tokens'),
    ({'template': chats.CHATML}, "its tokenizer .* isn't the model's .*: give"),
  ),
  ids=str,
)
def test_what_cannot_draft_is_refused(small, message):
  with pytest.raises(errors.InputError, match=f"='runs/small': {message}"):
    make().draft_by(models.generator(**small), 'runs/small')
