"""Examples of dialogues: every turn except the first is predicted."""

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text import turns as turns_lib
from rnn_jax.data.text.examples import base as examples_lib
from rnn_jax.data.text.examples import dialogue
from tests.support import corpora

BYTES = tokenizer.Bytes()
EDGE = BYTES.boundary


def make(text='hi\nhello\nbye', length=64, turns='all'):
  options = examples_lib.Options(
    config_lib.section('task', name='dialogue', turns=turns),
    config_lib.section('data'),
    length,
    None,
  )
  made = dialogue.Dialogues(corpora.in_memory(text), BYTES, options)
  ids = made.read(0)
  assert made.lengths.tolist() == [len(ids)]
  return ids


def test_every_turn_but_the_first_is_predicted_with_its_end():
  ids = make()
  np.testing.assert_array_equal(
    np.maximum(ids, ~ids), [EDGE, *b'hi', EDGE, *b'hello', EDGE, *b'bye', EDGE]
  )
  np.testing.assert_array_equal(ids >= 0, [0] * 4 + [1] * 10)


def test_the_first_pair_ends_the_dialogue():
  np.testing.assert_array_equal(make(turns='first'), make('hi\nhello'))


def test_of_a_long_dialogue_whole_turns_stay():
  np.testing.assert_array_equal(make(length=12), make('hi\nhello'))


def test_of_a_long_first_turn_its_end_stays_and_the_reply_begins():
  ids = make('abcdefghij\nreply', length=8)
  assert len(ids) == 9
  plain = np.maximum(ids, ~ids)
  np.testing.assert_array_equal(plain, [EDGE, *b'hij', EDGE, *b'repl'])
  np.testing.assert_array_equal(ids >= 0, [0] * 5 + [1] * 4)


def test_a_dialogue_of_one_turn_is_named():
  config = corpora.configure(source='jsonl')
  dialogue.check({'train': corpora.in_memory('a\nb')}, config)
  with pytest.raises(errors.InputError, match="1: 1 turn.*data.source='jsonl'"):
    dialogue.check({'train': corpora.in_memory('a\nb', 'alone\n ')}, config)


def test_an_empty_turn_is_trained_with_its_end():
  said = turns_lib.alternate(['ab', '', 'c'])
  ids = make(turns_lib.dump(said))
  read = [~EDGE, *(~x for x in b'ab'), ~EDGE]
  assert ids.tolist() == [*read, EDGE, *b'c', EDGE]
