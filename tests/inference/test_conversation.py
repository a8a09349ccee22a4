"""Conversations: reading turns one by one equals one pass over all."""

import copy
import dataclasses

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from tests.inference import models
from tests.support import chats

TURNS = 'how are you', ' where is it\n', 'so?'
BYTES = tokenizer.Bytes()
PLAIN = {'model_block': 'plain', 'cell_preset': 'simple', 'model_layers': 1}


@pytest.fixture(scope='module', name='generator')
def _generator():
  built = models.build(vocabulary=BYTES.size, **PLAIN)
  return generate.Generator(*built, BYTES, asks=True)


def greedy(most, **changes):
  return generate.Options(most, sampling.Sampling(0.0), **changes)


@pytest.mark.parametrize('bias', (-60, 60), ids=('cut off', 'ended'))
def test_a_conversation_equals_one_pass_over_its_turns(generator, bias):
  """A reply that was cut off ends before the next turn, too."""
  own = copy.copy(generator)
  head = generator.params['head']
  bias_V = head['bias'].at[BYTES.boundary].add(bias)
  own.params = generator.params | {'head': head | {'bias': bias_V}}
  options = greedy(6, min_new_tokens=3)
  talk = conversation.Conversation(own, options)
  ids, replies = [BYTES.boundary], []
  for turn in TURNS:
    pieces = []
    reply = talk.say(turn, lambda _, piece, to=pieces: to.append(piece))
    ids += [*turn.strip().encode(), BYTES.boundary]
    (whole,) = own.generate([np.array(ids)], options).completions
    assert reply == ''.join(pieces) == whole.text
    ends = whole.reason == 'boundary'
    assert ends == (bias > 0) and len(whole.tokens) == (4 if ends else 6)
    ids += [*whole.tokens, *[BYTES.boundary] * (not ends)]
    replies.append(reply)
  talk.reset()
  assert talk.say(TURNS[0]) == replies[0]
  (asked,) = own.generate([TURNS[0]], options).completions
  assert asked.text == replies[0] and len({*replies}) > 1


def test_turns_are_taken_back_without_reading_what_was_before(
  generator, monkeypatch
):
  read, extend = [], generator.extend

  def counting(state, ids, *rest):
    read.append(len(ids))
    return extend(state, ids, *rest)

  monkeypatch.setattr(generator, 'extend', counting)
  straight = conversation.Conversation(generator, greedy(6))
  wanted = [straight.say('a'), straight.say('c')]
  turned = conversation.Conversation(generator, greedy(6))
  got = [turned.say('a')]
  turned.say('bbbb')
  assert turned.back() == 'bbbb'
  assert [*got, turned.say('c')] == wanted
  assert read[-1] == read[1]  # the turn, and nothing before it
  for _ in wanted:
    turned.back()
  with pytest.raises(errors.InputError, match='back: no turn is left'):
    turned.again()
  assert turned.say('a') == wanted[0]


def test_a_turn_is_answered_again(generator):
  options = generate.Options(6, sampling.Sampling(1.0))
  talk = conversation.Conversation(generator, options)
  first = talk.say('a')
  assert talk.again() != first
  assert talk.back() == 'a'


def test_an_invalid_turn_changes_nothing(generator, monkeypatch):
  options = greedy(6)
  talk = conversation.Conversation(generator, options)
  with pytest.raises(errors.InputError, match="turn=' ': it must not be empty"):
    talk.say(' ')
  (asked,) = generator.generate([TURNS[0]], options).completions
  assert talk.say(TURNS[0]) == asked.text
  with pytest.raises(errors.InputError, match='stop=.*leave it out'):
    conversation.Conversation(generator, generate.Options(stop=('x',)))
  other = dataclasses.replace(generator.prompts, asks=False)
  monkeypatch.setattr(generator, 'prompts', other)
  with pytest.raises(errors.InputError, match="task.name='dialogue'"):
    conversation.Conversation(generator, options)


def test_a_question_does_not_continue_a_document(generator):
  options = generate.Options(4, continues=True)
  with pytest.raises(errors.InputError, match='continues=True: a prompt is a'):
    generator.generate([TURNS[0]], options)


def test_a_conversation_by_a_template_equals_one_pass_over_its_text():
  writer = chats.make(chats.CHATML)
  built = models.build(vocabulary=chats.SIZE, **PLAIN)
  generator = generate.Generator(*built, writer, asks=True)
  options = greedy(6)
  talk = conversation.Conversation(generator, options)
  begin = '<|im_start|>system\nBe kind.<|im_end|>'
  ids = chats.ids(begin)
  for turn in ('hi', 'so?', 'well'):
    reply = talk.say(turn)
    asked = f'\n<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n'
    ids += chats.ids(asked)
    (whole,) = generator.generate([np.array(ids)], options).completions
    assert reply == whole.text
    assert whole.reason == 'length'  # so that it lacks its end
    ids += [*whole.tokens, writer.boundary]
  (first,) = generator.generate(['hi'], options).completions
  talk.reset()
  assert talk.say('hi') == first.text


def messages(*texts):
  return [
    {'role': ('user', 'assistant')[n % 2], 'content': text}
    for n, text in enumerate(texts)
  ]


def test_a_reply_to_messages_is_that_to_their_ids(generator):
  options = greedy(6)
  ids = [BYTES.boundary]
  for text in ('how are you', 'well', 'so?'):
    ids += [*text.encode(), BYTES.boundary]
  given = messages('how are you', ' well ', 'so?')
  (wanted,) = generator.generate([np.array(ids)], options).completions
  assert conversation.reply(generator, given, options) == wanted
  talk = conversation.Conversation(generator, options)
  first = conversation.reply(generator, given[:1], options)
  assert talk.say('how are you') == first.text


def test_messages_by_a_template_are_its_text():
  writer = chats.make(chats.CHATML)
  built = models.build(vocabulary=chats.SIZE, **PLAIN)
  generator = generate.Generator(*built, writer, asks=True)
  text = (
    '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>'
    '\n<|im_start|>assistant\n'
  )
  ids = np.array(chats.ids(text))
  (wanted,) = generator.generate([ids], greedy(6)).completions
  given = [{'role': 'system', 'content': 'Be brief.'}, *messages('hi')]
  assert conversation.reply(generator, given, greedy(6)) == wanted


REFUSED = (
  ([], r'messages=\[\]: give a list of'),
  ('hi', "messages='hi': give a list of"),
  ({'role': 'user', 'content': 'hi'}, 'messages=.*: give a list of'),
  (['hi'], r"messages\[0\]='hi': give a dict with the keys"),
  ([{'content': 'hi'}], r'messages\[0\]=.*: give a dict with the keys'),
  ([{'role': 'user'}], r'messages\[0\]=.*: give a dict with the keys'),
  (messages('hi', 'yes'), r"messages\[1\]='assistant': end with what it"),
  ([{'role': 'me', 'content': 'a'}], r"messages\[0\]='me': its role is one"),
  ([{'role': 'user', 'content': 3}], r'messages\[0\]=3: its content is a text'),
  ([{'role': 'user', 'content': 'x' * 9**5, 'y': 1}], r'give a dict with'),
)


@pytest.mark.parametrize(('given', 'message'), REFUSED)
def test_malformed_messages_are_refused(generator, given, message):
  with pytest.raises(errors.InputError, match=message) as caught:
    conversation.reply(generator, given, greedy(6))
  assert len(str(caught.value)) < 400
