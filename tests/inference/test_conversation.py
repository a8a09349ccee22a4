"""Conversations: reading turns one by one equals one pass over all."""

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import conversation
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from tests.inference import models
from tests.support import chats
from tests.support import dialogues

TURNS = dialogues.TURNS


@pytest.fixture(scope='module')
def generator(tmp_path_factory):
  workdir = dialogues.train(tmp_path_factory.mktemp('dialogue'))
  return generate.Generator.from_workdir(workdir)


def test_a_conversation_equals_one_pass_over_its_turns(generator):
  options = generate.Options(20, sampling.Sampling(0.0))
  talk = conversation.Conversation(generator, options)
  pieces = []
  assert talk.say(TURNS[0]) == TURNS[1]
  reply = talk.say(f' {TURNS[2]}\n', lambda _, piece: pieces.append(piece))
  assert reply == ''.join(pieces) == TURNS[3]
  talk.reset()
  assert talk.say(TURNS[0]) == TURNS[1]
  (asked,) = generator.generate([TURNS[0]], options).completions
  assert asked.text == TURNS[1]


def test_a_reply_that_was_cut_off_ends_before_the_next_turn(generator):
  cut = conversation.Conversation(
    generator, generate.Options(4, sampling.Sampling(0.0))
  )
  assert cut.say(TURNS[0]) == TURNS[1][:4]
  reply = cut.say(TURNS[2])
  text = f'{TURNS[0]}\n{TURNS[1][:4]}\n{TURNS[2]}'.split('\n')
  ids = [generator.tokenizer.boundary]
  for turn in text:
    ids += [*turn.encode(), generator.tokenizer.boundary]
  options = generate.Options(4, sampling.Sampling(0.0))
  (whole,) = generator.generate([np.array(ids)], options).completions
  assert reply == whole.text


def test_an_invalid_turn_changes_nothing(generator, monkeypatch):
  options = generate.Options(20, sampling.Sampling(0.0))
  talk = conversation.Conversation(generator, options)
  with pytest.raises(errors.InputError, match="turn=' ': say something"):
    talk.say(' ')
  assert talk.say(TURNS[0]) == TURNS[1]
  with pytest.raises(errors.InputError, match='stop=.*leave it out'):
    conversation.Conversation(generator, generate.Options(stop=('x',)))
  monkeypatch.setattr(generator, 'asks', False)
  with pytest.raises(errors.InputError, match="task.name='dialogue'"):
    conversation.Conversation(generator, options)


def test_a_question_does_not_continue_a_document(generator):
  options = generate.Options(4, continues=True)
  with pytest.raises(errors.InputError, match='continues=True: a prompt is a'):
    generator.generate([TURNS[0]], options)


def test_a_conversation_by_a_template_equals_one_pass_over_its_text():
  tokenizer = chats.make(chats.CHATML)
  plain = {'model_block': 'plain', 'cell_preset': 'simple'}
  built = models.build(vocabulary=chats.SIZE, **plain)
  generator = generate.Generator(*built, tokenizer, asks=True)
  options = generate.Options(6, sampling.Sampling(0.0))
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
    ids += [*whole.tokens, tokenizer.boundary]
  (first,) = generator.generate(['hi'], options).completions
  talk.reset()
  assert talk.say('hi') == first.text
