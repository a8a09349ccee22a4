"""Tokenizers: round trips, one file for all kinds, refusals."""

import json
import pathlib
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text import tokenizer_training
from tests.support import chats
from tests.support import corpora

TEXTS = (
  'def main(argv):\n  print("hello, hello")\n' * 5,
  'the quick brown fox and the lazy dog, the end. é末\n' * 5,
)
KINDS = ('bytes', 'characters', 'byte_level', 'whitespace', 'lowercase')


def train(kind, texts=TEXTS, vocabulary=300):
  name = kind if kind in ('bytes', 'characters') else 'bpe'
  lowercase = kind == 'lowercase'
  pre = 'whitespace' if lowercase else kind
  data = config.section(
    'data',
    tokenizer=name,
    vocabulary=vocabulary,
    pre_tokenizer=pre if name == 'bpe' else 'byte_level',
    lowercase=lowercase,
  )
  return tokenizer_training.train(data, corpora.in_memory(*texts))


@pytest.fixture(scope='module', params=KINDS)
def trained(request):
  return train(request.param)


@pytest.mark.parametrize('kind', ('bytes', 'byte_level'))
def test_any_text_survives_tokens_of_bytes(kind):
  trained = train(kind)

  @hypothesis.given(st.text())
  def check(text):
    ids = trained.encode(text)
    assert ids.dtype == np.int32 and ids.ndim == 1
    assert trained.decode(ids) == text
    assert trained.boundary not in ids
    np.testing.assert_array_equal(ids, trained.encode(text.encode()))

  check()


def test_the_training_text_survives_unless_lossy(trained):
  for text in TEXTS:
    assert (trained.decode(trained.encode(text)) == text) == trained.lossless


def test_words_come_back_from_the_lossy_recipe():
  trained = train('whitespace')
  assert (
    trained.decode(trained.encode('the  quick\nfox,')) == 'the quick fox , '
  )


def test_words_in_lower_case_have_the_same_ids():
  trained = train('lowercase')
  assert not trained.uncovered('The QUICK É')
  texts = ['THE Quick É fox, the End', 'the quick é fox, the end']
  shouted, quiet = trained.encode_documents(texts)
  np.testing.assert_array_equal(shouted, quiet)
  np.testing.assert_array_equal(trained.encode(texts[0]), quiet)
  assert train('whitespace').uncovered('The QUICK É')


def test_ids_fill_the_vocabulary(trained):
  ids = np.concatenate([trained.encode(text) for text in TEXTS])
  assert ids.min() >= 0 and ids.max() < trained.size
  assert 0 <= trained.boundary < trained.size
  assert trained.decode([trained.boundary]) == ''


def test_one_file_stores_any_kind(trained, tmp_path):
  path = tmp_path / 'tokenizer.json'
  trained.save(path)
  loaded = tokenizer.load(path)
  assert [*tmp_path.iterdir()] == [path]
  assert loaded.spec() == trained.spec()
  assert (loaded.size, loaded.boundary) == (trained.size, trained.boundary)
  for text in TEXTS:
    np.testing.assert_array_equal(loaded.encode(text), trained.encode(text))


def test_characters_are_the_sorted_characters_of_the_text():
  trained = train('characters', ('cab', 'bé'))
  assert trained.encode('abcé').tolist() == [0, 1, 2, 3]
  assert trained.size == 6  # and the unknown character, and the boundary


@pytest.mark.parametrize('kind', ('characters', 'whitespace'))
def test_a_prompt_outside_the_vocabulary_is_refused_by_name(kind):
  trained = train(kind)
  with pytest.raises(errors.InputError, match='vocabulary: .*☃'):
    trained.encode('the ☃')


@pytest.mark.parametrize('kind', ('characters', 'whitespace'))
def test_a_document_outside_the_vocabulary_has_unknown_tokens(kind):
  trained = train(kind)
  ids = trained.encode_document('a ☃ fox')
  assert (ids == trained.unknown).sum() == 1
  assert '\ufffd' in trained.decode(ids)
  assert trained.uncovered('a ☃ fox') == {'☃'}


@pytest.mark.parametrize('text', ('\udcff', b'\xff'))
def test_a_prompt_that_is_not_unicode_is_refused(text, trained):
  with pytest.raises(errors.InputError, match="isn't UTF-8"):
    trained.encode(text)


def test_a_cut_character_is_held_back_by_decoding_bytes():
  trained = tokenizer.Bytes()
  first, second = trained.encode('é')
  assert trained.decode_bytes([first]) + trained.decode_bytes([second]) == (
    'é'.encode()
  )
  assert trained.decode([first]) == '\ufffd'


def test_text_that_looks_like_a_special_token_is_text():
  text = 'the <unknown> and <|endoftext|> the <unknown>'
  trained = train('byte_level', (text,))
  assert trained.decode(trained.encode(text)) == text


def test_byte_pairs_shorten_the_text():
  assert len(train('byte_level').encode(TEXTS[0])) < len(TEXTS[0]) / 2
  assert train('byte_level').size == 300


@pytest.mark.slow
def test_byte_pairs_are_the_same_in_another_process(tmp_path):
  script = (
    'from tests.data.text import test_tokenizer as t\n'
    f't.train("byte_level").save({str(tmp_path / "there")!r})'
  )
  root = pathlib.Path(__file__).parents[3]
  subprocess.run([sys.executable, '-c', script], cwd=root, check=True)
  train('byte_level').save(tmp_path / 'here')
  here, there = (tmp_path / name for name in ('here', 'there'))
  assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize(
  ('kind', 'vocabulary'), (('byte_level', 256), ('whitespace', 20))
)
def test_a_vocabulary_too_small_for_the_alphabet_is_refused(kind, vocabulary):
  with pytest.raises(errors.InputError, match=f'data.vocabulary={vocabulary}'):
    train(kind, vocabulary=vocabulary)


@pytest.mark.parametrize('content', ('', '[]', '{}', '{"kind": "odd"}'))
def test_a_damaged_file_is_named(tmp_path, content):
  path = tmp_path / 'tokenizer.json'
  path.write_text(content)
  with pytest.raises(
    errors.InputError, match='tokenizer.json is damaged .*: remove it'
  ):
    tokenizer.load(path)


def test_a_damaged_model_is_named(tmp_path):
  path = tmp_path / 'tokenizer.json'
  train('byte_level').save(path)
  spec = json.loads(path.read_text())
  spec['model'] = {'version': '1.0'}
  path.write_text(json.dumps(spec))
  with pytest.raises(
    errors.InputError, match='tokenizer.json is damaged .*: remove it'
  ):
    tokenizer.load(path)


def test_numbers_are_their_own_text(tmp_path):
  trained = tokenizer_training.train(
    config.section('data', tokenizer='numbers', vocabulary=12),
    corpora.in_memory('1'),
  )
  assert (trained.size, trained.boundary) == (12, 11)
  assert trained.encode('0 10  3\n').tolist() == [0, 10, 3]
  assert trained.decode([0, 10, 11, 3]) == ' 0 10 3'
  trained.save(tmp_path / 'tokenizer.json')
  assert tokenizer.load(tmp_path / 'tokenizer.json').spec() == trained.spec()
  for text, word in (('3 x', 'x'), ('11', '11'), ('-1', '-1')):
    with pytest.raises(
      errors.InputError, match=f"'{word}' isn't an id.* 0 to 10"
    ):
      trained.encode(text)


def test_a_vocabulary_and_its_merges_are_byte_pairs():
  trained = train('byte_level')
  model = trained.spec()['model']['model']
  given = tokenizer_training.byte_pairs(model['vocab'], model['merges'])
  for text in TEXTS:
    np.testing.assert_array_equal(given.encode(text), trained.encode(text))
  with pytest.raises(ValueError, match='gaps'):
    tokenizer_training.byte_pairs({'a': 0, 'b': 2}, [])
  with pytest.raises(ValueError):
    tokenizer_training.byte_pairs({'a': 0, 'b': 1}, [('a', 'c')])


@pytest.mark.parametrize('count', (3, 3000))
def test_a_large_corpus_is_sampled_over_its_whole_length(count, monkeypatch):
  monkeypatch.setattr(tokenizer_training, 'SAMPLED', 300)
  size = 36_000 // count
  texts = [chr(97 + 26 * n // count) * size for n in range(count)]
  data = config.section('data', tokenizer='characters', tokenizer_bytes=12_000)
  made = tokenizer_training.train(data, corpora.in_memory(*texts))
  assert made.spec()['characters'] == ''.join(sorted({t[0] for t in texts}))
  read = [*tokenizer_training._sample(corpora.in_memory(*texts), 12_000)]
  assert sum(map(len, read)) == 12_000
  assert [*tokenizer_training._sample(corpora.in_memory('abc', 'd'), 4)] == [
    'abc',
    'd',
  ]


@pytest.mark.parametrize('kind', ('byte_level', 'whitespace'))
def test_both_sides_of_a_cut_have_the_ids_of_the_whole(kind):
  trained = train(kind)
  spaces = st.sampled_from([' ', '  ', '\n', '\t', '\xa0', '\u3000', ' \x1c'])
  words = st.sampled_from(['fox', "it's", 'é末', '12', '...', '\u200b', ''])
  parts = st.lists(words | spaces, min_size=1, max_size=12)

  @hypothesis.given(parts.map(''.join))
  def check(text):
    content = text.encode()
    whole = trained.encode_document(text)
    for at in range(len(content) + 1):
      if trained.is_cut(content, at):
        sides = content[:at], content[at:]
        joined = np.concatenate([*map(trained.encode_document, sides)])
        np.testing.assert_array_equal(joined, whole)

  check()
  assert trained.is_cut(b'the fox', 3) and not trained.is_cut(b'the fox', 2)


def test_a_special_token_may_have_characters_that_name_no_byte():
  model, text = chats.spec(), '<｜end▁of▁sentence｜>'
  one = model['added_tokens'][-1] | {'id': chats.SIZE, 'content': text}
  model['added_tokens'].append(one)
  made = tokenizer.Pretrained(model, chats.SIZE + 1, 0)
  ids = made.encode(f'a{text}é')
  np.testing.assert_array_equal(ids, [97, chats.SIZE, *'é'.encode()])
  assert made.decode(ids) == f'a{text}é'
