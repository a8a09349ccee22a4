"""The text and the class of a row."""

import pytest

from rnn_jax import errors
from rnn_jax.data.tables import values
from rnn_jax.data.text import turns

SAID = [{'role': 'user', 'content': 'hi\nyou'}, {'role': 'bot', 'content': 'ü'}]


def test_texts_lists_messages_and_several_columns():
  row = {'text': 'a', 'turns': ['b\nc', 'd'], 'said': SAID}
  assert values.text_of(row, 'text', 'x:1') == 'a'
  assert values.text_of(row, 'turns', 'x:1') == 'b c\nd'
  read = turns.load(values.text_of(row, 'said', 'x:1').encode())
  assert read == [('user', 'hi\nyou'), ('bot', 'ü')]
  assert values.text_of({'p': 'ü', 'q': 'b'}, 'p,q', 'x:1') == '["ü", "b"]'


@pytest.mark.parametrize(
  ('row', 'column', 'message'),
  (
    ({'b': ''}, 'a', r"x:1: no column 'a': name one of \['b'\] in --text"),
    ({'a': None}, 'a', "x:1: 'a' is NoneType, not text: .*another .* --text"),
    ({'a': ['b', 3]}, 'a', r"x:1: 'a\[1\]' is int, not text"),
    ({'a': 'b', 'c': 3}, 'a,c', "x:1: 'c' is int, not text: fix it"),
    ({'a': [{'role': 'user'}]}, 'a', 'item 0 is NoneType, not text'),
  ),
)
def test_what_is_no_text_is_named(row, column, message):
  with pytest.raises(errors.InputError, match=message):
    values.text_of(row, column, 'x:1', '--text')


def test_labels():
  classes = ('no', 'yes')
  row = {'a': 'yes', 'b': 0, 'c': None, 'd': '', 'e': -1}
  numbers = [values.label_of(row, name, classes, 'x:1') for name in 'abcd']
  assert numbers == [1, 0, None, None]
  with pytest.raises(errors.InputError, match="x:1: e=-1 isn't one of the cl"):
    values.label_of(row, 'e', classes, 'x:1')
