"""The writer: text from tokens that may be parts of characters."""

import hypothesis
import pytest
from hypothesis import strategies

from rnn_jax.data.text import tokenizer
from rnn_jax.inference import text

BYTES = tokenizer.Bytes()


def write(tokens, stop, sizes):
  """Returns the writer and the parts that slices of these sizes gave."""
  writer, parts, at = text.Writer(BYTES, stop), [], 0
  for size in [*sizes, len(tokens)]:
    shown = len(writer.text)
    writer.write(tokens[at : at + size])
    parts.append(writer.text[shown:])
    at += size
    if writer.stopped:
      break
  shown = len(writer.text)
  writer.finish()
  return writer, [*parts, writer.text[shown:]]


def ids(string):
  return BYTES.encode(string).tolist()


@hypothesis.given(
  strategies.text('aé\U0001f600\u4e2d', max_size=8),
  strategies.lists(strategies.integers(1, 5), max_size=8),
)
def test_no_part_ends_within_a_character(string, sizes):
  writer, parts = write(ids(string), (), sizes)
  assert writer.text == ''.join(parts) == string
  assert '\ufffd' not in ''.join(parts)


@hypothesis.given(
  strategies.text('abé', max_size=12),
  strategies.lists(
    strategies.text('abé', min_size=1, max_size=4), min_size=1, max_size=3
  ),
  strategies.lists(strategies.integers(1, 5), max_size=8),
)
def test_the_text_ends_before_the_first_stop_string(string, stop, sizes):
  writer, parts = write(ids(string), stop, sizes)
  ends = [end for end in range(len(string) + 1)
          if any(string[:end].endswith(s) for s in stop)]  # fmt: skip
  wanted = string
  if ends:  # the first to be complete, and of those the longest
    done = string[: ends[0]]
    longest = max((s for s in stop if done.endswith(s)), key=len)
    wanted = done.removesuffix(longest)
  assert writer.text == wanted
  assert writer.stopped == bool(ends)
  assert ''.join(parts) == wanted


@pytest.mark.parametrize('size', (1, 2, 3, 50))
def test_a_stop_string_may_span_slices(size):
  writer, parts = write(ids('one\n\ntwo'), ('\n\n',), [size] * 9)
  assert ''.join(parts) == writer.text == 'one'


def test_no_token_after_the_stop_string_is_read():
  writer = text.Writer(BYTES, ('end',))
  assert writer.write(ids('the ')) == 4
  assert writer.write(ids('end of it')) == 3


def test_what_may_become_a_stop_string_is_held_back():
  writer = text.Writer(BYTES, ('stop',))
  writer.write(ids('a sto'))
  assert writer.text == 'a '
  writer.write(ids('ry'))
  assert writer.text == 'a story'
  writer.write(ids(' st'))
  writer.finish()
  assert writer.text == 'a story st'


def test_an_incomplete_character_is_replaced():
  writer, _ = write(ids('aé')[:-1], (), [1])
  assert writer.text == 'a\ufffd' == BYTES.decode(ids('aé')[:-1])


def test_a_boundary_is_not_text():
  writer, _ = write([97, BYTES.boundary, 98], ('x',), [1])
  assert writer.text == 'ab'
