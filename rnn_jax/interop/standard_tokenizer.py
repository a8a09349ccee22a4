"""The tokenizer.json of package `tokenizers`, for programs without rnn_jax.

It has the same ids for a text. The boundary may have an id that it lacks: the
program that reads it adds the boundary.
"""

import json
from typing import Any

import tokenizers

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file

UNKNOWN = '<unknown>'  # longer than a character, as no other entry is
BOUNDARY = '<|endoftext|>'  # GPT-2's


def describe(tokenizer: tokenizer_lib.Tokenizer) -> dict[str, Any] | None:
  """Returns the content of tokenizer.json; None of a vocabulary of numbers."""
  spec = tokenizer.spec()
  if spec['kind'] == 'numbers':
    return None
  if spec['kind'] == 'bytes':
    return _of_bytes()
  if spec['kind'] == 'characters':
    return _of_characters(spec['characters'])
  model = dict(spec['model'])
  if tokenizer.lossless and not model.get('decoder'):
    model['decoder'] = _parsed(_byte_level())['decoder']
  return model


def _of_bytes():
  names = {byte: name for name, byte in tokenizer_file.BYTE_NAMES.items()}
  return _parsed(_byte_level({names[byte]: byte for byte in range(256)}))


def _byte_level(vocabulary=None):
  made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary or {}, []))
  made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  return made


def _of_characters(characters):
  entries = {character: n for n, character in enumerate(characters)}
  made = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(
      entries | {UNKNOWN: len(characters)}, unk_token=UNKNOWN
    )
  )
  each = tokenizers.Regex(r'[\s\S]')
  made.pre_tokenizer = tokenizers.pre_tokenizers.Split(each, 'isolated')
  made.decoder = tokenizers.decoders.Fuse()
  return _parsed(made)


def _parsed(tokenizer):
  return json.loads(tokenizer.to_str())


def describe_with_boundary(
  tokenizer: tokenizer_lib.Tokenizer,
) -> dict[str, Any] | None:
  """Returns the same, in which the boundary is a token too; it may be there."""
  model = describe(tokenizer)
  if model is None or tokenizer.spec()['kind'] == 'pretrained':
    return model
  added = [*(model.get('added_tokens') or [])]
  known = {*model['model']['vocab'].values(), *(x['id'] for x in added)}
  if tokenizer.boundary not in known:
    flags = dict.fromkeys(
      ('single_word', 'lstrip', 'rstrip', 'normalized'), False
    )
    one = {'id': tokenizer.boundary, 'content': BOUNDARY, 'special': True}
    added.append(one | flags)
  return model | {'added_tokens': added}
