"""Package `tokenizers` reads the tokenizer.json of an export: equal ids."""

import json

import pytest
import tokenizers

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.interop import standalone_classify
from rnn_jax.interop import standard_tokenizer
from tests.support import chats

TEXTS = (
  'The gate  forgets.\n\nIt reads\ttwice: "ok"',
  'naïve café 漢字 🙂 e\u0301',
  ' leading and trailing ',
  '',
  '<unknown> <|im_start|>',
)


def trained(kind, pre='byte_level'):
  """A tokenizer of TEXTS but the second."""
  data = config_lib.section(
    'data', tokenizer=kind, vocabulary=300, pre_tokenizer=pre
  )
  texts = [TEXTS[0], *TEXTS[2:]]
  if kind == 'bpe':
    return tokenizer_training.train_byte_pairs(texts, data)
  return tokenizer_lib.Characters(''.join(sorted({*''.join(texts)})))


MADE = {
  'bytes': tokenizer_lib.Bytes,
  'characters': lambda: trained('characters'),
  'byte pairs': lambda: trained('bpe'),
  'pairs of words': lambda: trained('bpe', 'whitespace'),
  'pretrained': lambda: chats.make(chats.CHATML),
}


@pytest.mark.parametrize('kind', MADE)
def test_ids_of_a_text_are_the_same(kind, tmp_path):
  tokenizer = MADE[kind]()
  text = json.dumps(standard_tokenizer.describe(tokenizer))
  read = tokenizers.Tokenizer.from_str(text)
  (tmp_path / 'tokenizer.json').write_text(text)
  alone = standalone_classify.Vocabulary(tmp_path, tokenizer.boundary)
  for text in (*TEXTS, 'the end <|im_end|>'):
    ids = tokenizer.encode_document(text).tolist()
    assert alone.encode(text) == ids
    covered = tokenizer.unknown is None or tokenizer.unknown not in ids
    if tokenizer.lossless and covered and tokenizer.template is None:
      assert read.decode(ids) == text


def test_numbers_have_no_file(tmp_path):
  assert standard_tokenizer.describe(tokenizer_lib.Numbers(9)) is None
  with pytest.raises(SystemExit, match='no such file: give ids, --tokens=1,2'):
    standalone_classify.Vocabulary(tmp_path, 8)
