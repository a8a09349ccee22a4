"""The text, the class and the number of a row."""

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


@pytest.mark.parametrize(
  ('names', 'labels', 'numbers'),
  (
    (('no', 'yes'), ('yes', 1, '0', 'no'), (1, 1, 0, 0)),
    (('no', 'yes'), (None, ''), (values.UNLABELLED, values.UNLABELLED)),
    (('1', '2', '3'), ('1', 2, '3'), (0, 1, 2)),
    (('3', '2', '1', '0'), (0, '1', 3), (3, 2, 0)),
    (('False', 'True'), (True, 'False'), (1, 0)),
  ),
)
def test_a_name_takes_precedence_over_a_number(names, labels, numbers):
  got = (values.class_of(label, 'a', names, 'x:1') for label in labels)
  assert tuple(got) == numbers


@pytest.mark.parametrize(
  ('names', 'label'),
  (
    (('no', 'yes'), 2),
    (('no', 'yes'), -1),
    (('no', 'yes'), True),
    (('no', 'yes'), 1.0),
    (('no', 'yes'), ['no']),
    (('1', '2', '3'), 0),
  ),
)
def test_other_labels_are_invalid(names, label):
  with pytest.raises(errors.InputError, match="x:1: a=.* isn't one of the cl"):
    values.class_of(label, 'a', names, 'x:1')


def test_a_difficulty_is_a_finite_number_or_its_spelling():
  got = [values.number_of(x, 'a', 'x:1', 'key') for x in (3, 0.5, '-1e3')]
  assert got == [3, 0.5, -1000]
  for bad in (True, 'much', None, float('nan'), 'inf', ''):
    with pytest.raises(errors.InputError, match="x:1: key='a' is .*: give a n"):
      values.number_of(bad, 'a', 'x:1', 'key')


@pytest.mark.parametrize(
  ('value', 'part'),
  (
    ('a', ''),
    (' \n', 'x'),
    ([], 'x'),
    (['a', ' '], 'x[1]'),
    ([3], ''),
    (0, ''),
    ([{'role': 'user', 'content': ''}], ''),
  ),
)
def test_what_is_empty_is_named(value, part):
  assert values.empty_part('x', value) == part
