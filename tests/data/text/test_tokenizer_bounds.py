"""Tokenizers of strangers: rules that panic, grow, or never end."""

import os
import pickle

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data.text import apart
from rnn_jax.data.text import apart_worker
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_library
from rnn_jax.data.text import tokenizer_rules
from tests.support import chats

TEXT = "It's 2024:\n\n  the  STATE   reads\ta line \u4f60\u597d!\r\n x"
LLAMA3 = (
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
)
LETTERS, SMALL = tokenizer_rules.LETTERS, tokenizer_rules.SMALL
ENDINGS = tokenizer_rules.ENDINGS
O200K = (
  f'[^\\r\\n\\p{{L}}\\p{{N}}]?{LETTERS}*{SMALL}+{ENDINGS}?|'
  f'[^\\r\\n\\p{{L}}\\p{{N}}]?{LETTERS}+{SMALL}*{ENDINGS}?|\\p{{N}}{{1,3}}|'
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
)
PUBLISHED = (
  LLAMA3,
  O200K,
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
  '\\s+(?!\\S)|\\s+',
  '[\\r\\n]',
  '\\s?\\p{L}+',
  '[0-9][0-9][0-9]',
  '\\p{N}{1,3}',
  ' {2,}',
  ' ?[\\p{P}\\p{S}]+[\\r\\n]*',
)


def split(expression, behavior='Isolated'):
  return {
    'type': 'Split',
    'pattern': {'Regex': expression},
    'behavior': behavior,
    'invert': False,
  }


def sequence(kind, *parts):
  return {'type': 'Sequence', kind: [*parts]}


def replace(content, **pattern):
  return {'type': 'Replace', 'pattern': pattern, 'content': content}


def over_bytes(**changes):
  """A tokenizer.json over bytes, with other parts."""
  return chats.spec() | changes


def before(*parts):
  last = {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': True,
    'use_regex': False,
  }
  return over_bytes(pre_tokenizer=sequence('pretokenizers', *parts, last))


def pretrained(model, size=chats.SIZE):
  return tokenizer_lib.Pretrained(model, size, size - 1)


@pytest.mark.parametrize('expression', PUBLISHED)
def test_published_expressions_run_here(expression):
  model = before(split(expression))
  assert tokenizer_rules.are_known(model)
  made = tokenizer_library.make(model)
  assert type(made) is tokenizer_library.Library
  (ids,) = made.encode([TEXT])
  assert ids.tolist() == [*TEXT.encode()]


@pytest.mark.parametrize(
  'expression',
  (
    '(a+)+$',
    '(a|a)*b',
    'a*a*b',
    '[^x]*x',
    '\\S+(?!\\S)',
    '\\s+(?!\\S)',  # without \s+ after it
    '(' * 100_000,
    'a{1,100000}b',
    '((a{1,1000}){1,1000}){1,1000}',
    '\\p{L}+?x',
    '(?<=a)b',
    '(a)\\1',
    '',
  ),
)
def test_other_expressions_run_apart(expression):
  assert not tokenizer_rules.is_linear(expression)
  assert not tokenizer_rules.are_known(before(split(expression)))


def test_a_process_apart_gives_the_same_ids():
  model = before(split('(\\p{L}+|\\S|(\\s+\\n)*\\s)'))
  made = pretrained(model)
  assert type(made._library) is tokenizer_library.Apart
  here = tokenizer_library.Library(model)
  texts = [TEXT, '', '<s>a</s>', 'x' * 1000]
  for special in (True, False):
    want = here.encode(texts, special)
    got = made._library.encode(texts, special)
    assert len(want) == len(got) == 4
    for a, b in zip(want, got, strict=True):
      np.testing.assert_array_equal(a, b)
      assert b.dtype == np.int32
  assert made._library.vocabulary() == here.vocabulary()
  again = pickle.loads(pickle.dumps(made._library))
  np.testing.assert_array_equal(again.encode([TEXT])[0], here.encode([TEXT])[0])


@pytest.mark.slow
@pytest.mark.parametrize(
  ('model', 'text', 'words'),
  (
    (before(split('(a+)+$')), 'a' * 40 + 'b', 'retry-limit|took more'),
    (
      over_bytes(
        normalizer=sequence(
          'normalizers', *5 * [replace('a' * 1000, String='a')]
        )
      ),
      'a',
      'its process ended, which may take 2.0 GiB|took more|capacity',
    ),
    (
      over_bytes(normalizer={'type': 'Prepend', 'prepend': 'a' * 10**7}),
      'a',
      'its process ended|it took more than',
    ),
  ),
  ids=('panic', 'replaces', 'prepend'),
)
def test_rules_that_explode_end_with_a_line(monkeypatch, model, text, words):
  made = pretrained(model)
  monkeypatch.setattr(apart, 'SECONDS', 1)
  with pytest.raises(errors.InputError, match=words) as refused:
    made.encode(text)
  assert 'tokenizer.json' in str(refused.value)
  assert '\n' not in str(refused.value)


def test_a_request_that_takes_long_is_ended_and_the_next_works(monkeypatch):
  made = pretrained(before(split('(a*a*a*(?=b)|c)')))
  monkeypatch.setattr(apart, 'SECONDS', 0)
  with pytest.raises(errors.InputError, match='took more than'):
    made.encode(('a' * 200 + 'c') * 20 + 'b')
  monkeypatch.undo()
  assert made.encode('ca').tolist() == [*b'ca']


def test_the_process_is_gone_with_its_tokenizer():
  made = tokenizer_library.Apart(before(split('(a|b)*c')))
  number = made._process._process.pid
  del made
  with pytest.raises(ProcessLookupError):
    os.kill(number, 0)


@pytest.mark.parametrize(
  ('model', 'known'),
  (
    (chats.spec(), True),
    (over_bytes(normalizer=replace('\u2581', String=' ')), True),
    (over_bytes(normalizer=replace('\u2581', Regex=' {2,}')), True),
    (over_bytes(normalizer=replace('ab', String='')), False),
    (
      over_bytes(
        normalizer=sequence('normalizers', *4 * [replace('abcdef', String='a')])
      ),
      False,
    ),
    (over_bytes(normalizer={'type': 'Prepend', 'prepend': 'a' * 257}), False),
    (
      over_bytes(
        normalizer={'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'}
      ),
      False,
    ),
    (
      over_bytes(
        added_tokens=[{'id': 3, 'content': 'x' * 5000, 'special': True}]
      ),
      False,
    ),
    (
      over_bytes(
        model=chats.spec()['model'] | {'end_of_word_suffix': 'a' * 1000}
      ),
      False,
    ),
    (over_bytes(normalizer=[1]), False),
    ({'model': {}}, False),
  ),
)
def test_what_is_known_to_be_cheap(model, known):
  assert tokenizer_rules.are_known(model) is known


def test_frames_are_read_as_they_are_written(tmp_path):
  with open(tmp_path / 'x', 'wb') as file:
    apart_worker.write(file, b'abc')
    apart_worker.write(file, b'')
  with open(tmp_path / 'x', 'rb') as file:
    assert apart_worker.read(file) == b'abc'
    assert apart_worker.read(file) == b''
