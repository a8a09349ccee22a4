"""Vocabularies: tokens, types, merges and scores; and read from these again."""

import dataclasses
import json

import numpy as np
import pytest
import tokenizers

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.interop.gguf import reader
from rnn_jax.interop.gguf import splitting
from rnn_jax.interop.gguf import vocabulary
from tests.interop.gguf import models
from tests.support import chats

TEXTS = (
  'the state of the gate',
  " It's 1234 états,\n\n  twice\t",
  '数の state <|endoftext|> \U0001f600!',
)
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def values_of(tokenizer, tmp_path, **kept):
  """Values of a file with this tokenizer."""
  bundle = models.make('mamba2', tokenizer)
  bundle = dataclasses.replace(bundle, kept=kept)
  return reader.read(models.write(bundle, tmp_path / 'out')).values


def read(values, size, config=None):
  return vocabulary.read('x.gguf', values, size, config)


SIZE = 300  # of the vocabulary of byte pairs


def byte_pairs():
  data = config_lib.section(
    'data', tokenizer='bpe', vocabulary=SIZE, pre_tokenizer='byte_level'
  )
  return tokenizer_training.train_byte_pairs(TEXTS * 3, data)


def assert_same_ids(tokenizer, other):
  assert other.size == tokenizer.size
  assert other.boundary == tokenizer.boundary
  for text in TEXTS:
    want = tokenizer.encode_document(text)
    np.testing.assert_array_equal(other.encode_document(text), want)
    assert other.decode(want) == tokenizer.decode(want)


@pytest.mark.parametrize('make', (tokenizer_lib.Bytes, byte_pairs))
def test_a_vocabulary_over_bytes_comes_back_in_either_way(make, tmp_path):
  tokenizer = make()
  values = values_of(tokenizer, tmp_path)
  assert values['tokenizer.ggml.model'] == 'gpt2'
  assert values['tokenizer.ggml.pre'] == 'gpt-2'
  tokens = values['tokenizer.ggml.tokens']
  assert len(tokens) == len({*tokens}) == tokenizer.size
  types = values['tokenizer.ggml.token_type'].tolist()
  assert types == [NORMAL] * (tokenizer.size - 1) + [CONTROL]
  for end in ('bos', 'eos'):
    assert values[f'tokenizer.ggml.{end}_token_id'] == tokenizer.boundary
  assert values['tokenizer.ggml.add_bos_token'] is True
  assert_same_ids(tokenizer, read(values, tokenizer.size))
  del values['tokenizer.huggingface.json']
  assert_same_ids(tokenizer, read(values, tokenizer.size))


def test_numbers_have_no_vocabulary(tmp_path):
  values = values_of(tokenizer_lib.Numbers(models.V), tmp_path)
  assert values['tokenizer.ggml.model'] == 'none'
  assert read(values, models.V).spec() == {'kind': 'numbers', 'size': models.V}


def test_what_llama_cpp_has_no_tokenizer_for_is_refused(tmp_path):
  words = config_lib.section(
    'data', tokenizer='bpe', vocabulary=60, pre_tokenizer='whitespace'
  )
  for tokenizer in (
    tokenizer_lib.Characters('abc'),
    tokenizer_training.train_byte_pairs(TEXTS, words),
  ):
    with pytest.raises(errors.InputError, match='llama.cpp has no tokenizer'):
      values_of(tokenizer, tmp_path)


def sentence_pieces():
  """A tokenizer.json as of Llama 2, of few pieces."""
  pieces = ['<unk>', '<s>', '</s>', *(f'<0x{n:02X}>' for n in range(256))]
  pieces += ['\u2581', *'thestaogf', '\u2581t', 'he', '\u2581the', 'st', 'at']
  pieces += ['stat', 'state', '\u2581state', 'e']
  merges = [
    *(('\u2581', 't'), ('h', 'e'), ('\u2581t', 'he'), ('s', 't'), ('a', 't')),
    *(('st', 'at'), ('stat', 'e'), ('\u2581', 'state')),
  ]
  pieces = [*dict.fromkeys(pieces)]
  made = tokenizers.Tokenizer(
    tokenizers.models.BPE(
      {piece: n for n, piece in enumerate(pieces)},
      merges,
      unk_token='<unk>',
      fuse_unk=True,
      byte_fallback=True,
    )
  )
  made.normalizer = tokenizers.normalizers.Sequence(
    [
      tokenizers.normalizers.Prepend('\u2581'),
      tokenizers.normalizers.Replace(' ', '\u2581'),
    ]
  )
  made.decoder = tokenizers.decoders.Sequence(
    [
      tokenizers.decoders.Replace('\u2581', ' '),
      tokenizers.decoders.ByteFallback(),
      tokenizers.decoders.Fuse(),
      tokenizers.decoders.Strip(' ', 1, 0),
    ]
  )
  made.add_special_tokens(['<unk>', '<s>', '</s>'])
  made.post_processor = tokenizers.processors.TemplateProcessing(
    single='<s> $A', special_tokens=[('<s>', 1)]
  )
  return json.loads(made.to_str()), len(pieces)


def test_pieces_have_scores_and_come_back_from_these(tmp_path):
  model, size = sentence_pieces()
  tokenizer = tokenizer_lib.Pretrained(model, size, 2)
  values = values_of(tokenizer, tmp_path)
  assert values['tokenizer.ggml.model'] == 'llama'
  types = values['tokenizer.ggml.token_type'].tolist()
  assert types[:4] == [UNKNOWN, CONTROL, CONTROL, BYTE] and types[-1] == NORMAL
  tokens, scores = (
    values[f'tokenizer.ggml.{name}'] for name in ('tokens', 'scores')
  )
  by_token = dict(zip(tokens, scores, strict=True))
  assert by_token['\u2581t'] > by_token['\u2581the'] > by_token['stat']
  assert values['tokenizer.ggml.add_space_prefix'] is True
  assert values['tokenizer.ggml.bos_token_id'] == 1
  assert values['tokenizer.ggml.add_bos_token'] is True
  assert_same_ids(tokenizer, read(values, size))
  del values['tokenizer.huggingface.json']
  assert_same_ids(tokenizer, read(values, size))


@pytest.mark.parametrize('name', ('CHATML', 'LLAMA3'))
def test_a_chat_template_comes_back(name, tmp_path):
  source = getattr(chats, name)
  tokens = [x['content'] for x in chats.spec()['added_tokens']]
  ids = {x['content']: x['id'] for x in chats.spec()['added_tokens']}
  end = {'CHATML': '<|im_end|>', 'LLAMA3': '<|eot|>'}[name]
  assert end in tokens
  template = {'text': source, 'tokens': {}}
  if name == 'LLAMA3':
    template['tokens'] = {'bos_token': '<s>'}
  tokenizer = tokenizer_lib.Pretrained(
    chats.spec(), chats.SIZE, ids[end], template
  )
  kept = {'config.json': json.dumps({'bos_token_id': ids['<s>']})}
  values = values_of(tokenizer, tmp_path, **kept)
  assert values['tokenizer.chat_template'] == source
  assert values['tokenizer.ggml.eos_token_id'] == ids[end]
  back = read(values, chats.SIZE)
  assert back.spec() == tokenizer.spec()
  plain = config_lib.parse(config_lib.default())
  assert read(values, chats.SIZE, plain).template is None


@pytest.mark.parametrize('name', [names[0] for names in splitting.FORMS])
def test_a_way_of_splitting_has_a_name_and_is_read_from_it(name):
  model = {'pre_tokenizer': splitting.describe(name), 'normalizer': None}
  model['model'] = {'merges': [['a', 'b']]}
  model['model']['ignore_merges'] = splitting.takes_words(name)
  assert splitting.name_of(model) == name
  whole = {
    'version': '1.0',
    'added_tokens': [],
    'pre_tokenizer': splitting.describe(name),
    'model': {'type': 'BPE', 'vocab': {}, 'merges': []},
  }
  made = tokenizers.Tokenizer.from_str(json.dumps(whole))
  words = [x for x, _ in made.pre_tokenizer.pre_tokenize_str("it's 1234 ok")]
  assert ''.join(words) == "it'sĠ1234Ġok"
  assert len(words) > 3


def test_an_unknown_way_of_splitting_is_a_warning(tmp_path, caplog):
  tokenizer = byte_pairs()
  model = tokenizer.spec()['model'] | {'normalizer': {'type': 'Lowercase'}}
  model['decoder'] = {'type': 'ByteLevel'} | splitting.GPT2
  pretrained = tokenizer_lib.Pretrained(model, tokenizer.size, 299)
  values = values_of(pretrained, tmp_path)
  assert values['tokenizer.ggml.pre'] == 'default'
  assert 'may have other ids' in caplog.text


WRONG = {
  'a model that is a number': ({'tokenizer.ggml.model': 3}, 'model=3'),
  'no tokens': ({'tokenizer.ggml.tokens': None}, 'tokens=None: give texts'),
  'tokens of numbers': (
    {'tokenizer.ggml.tokens': np.arange(3)},
    'tokens=.*give texts',
  ),
  'a token twice': ({'tokenizer.ggml.tokens': ['a', 'a']}, 'each of them once'),
  'more tokens than rows': (
    {'tokenizer.ggml.tokens': [str(n) for n in range(999)]},
    'at most 300 tokens',
  ),
  'types of one': (
    {'tokenizer.ggml.token_type': np.array([1])},
    'token_type=.*one for each token',
  ),
  'types of texts': ({'tokenizer.ggml.token_type': ['a']}, 'token_type='),
  'merges of a text': ({'tokenizer.ggml.merges': 'a b'}, "merges='a b'"),
  'another way of splitting': (
    {'tokenizer.ggml.pre': 'theirs'},
    "pre='theirs': only",
  ),
  'an end outside': (
    {'tokenizer.ggml.eos_token_id': 300},
    'eos_token_id=300: give 299 or less',
  ),
  'an end of text': ({'tokenizer.ggml.eos_token_id': 'x'}, "eos_token_id='x'"),
  'a template of numbers': ({'tokenizer.chat_template': 3}, 'chat_template=3'),
  'a whole of rubbish': ({'tokenizer.huggingface.json': '{'}, 'damaged'),
  'a whole that is a list': (
    {'tokenizer.huggingface.json': '[]'},
    'it must be an object',
  ),
  'a whole of another size': (
    {
      'tokenizer.huggingface.json': json.dumps(
        {
          'model': {'type': 'BPE', 'vocab': {}, 'merges': []},
          'added_tokens': [{'id': 300, 'content': 'a'}],
        }
      )
    },
    'id must be an id',
  ),
}


@pytest.fixture(scope='module', name='known')
def _known(tmp_path_factory):
  values = values_of(byte_pairs(), tmp_path_factory.mktemp('known'))
  del values['tokenizer.huggingface.json']
  return values


@pytest.mark.parametrize('name', WRONG)
def test_a_wrong_value_is_refused_by_its_key(name, known):
  changed, says = WRONG[name]
  with pytest.raises(errors.InputError, match=says):
    read(known | changed, SIZE)


def test_merges_of_unknown_tokens_are_left_out(known):
  merges = [*known['tokenizer.ggml.merges'], 'x yz', 'nothing', 'a b c']
  back = read(known | {'tokenizer.ggml.merges': merges}, SIZE)
  assert_same_ids(byte_pairs(), back)
