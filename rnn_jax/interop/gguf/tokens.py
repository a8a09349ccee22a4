"""Tokens of a vocabulary and their types, and the tokenizer.json of them.

A type says what a token is: one of texts, the one for what the vocabulary
lacks, one that no text encodes to, an added string, an unused id, or a byte.
"""

import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop.gguf import splitting

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTE_TOKEN = re.compile('<0x[0-9A-F]{2}>')
SPACE = '\u2581'
PARTS = {  # of a tokenizer.json, without those that it may lack
  'version': '1.0',
  'truncation': None,
  'padding': None,
  'normalizer': None,
  'post_processor': None,
}
LEAST = -1e6  # the score of a token that no merge makes


def listed(
  tokenizer: tokenizer_lib.Tokenizer, model: Mapping[str, Any]
) -> tuple[list[str], list[int]]:
  """Returns the token of each id, and its type.

  Args:
    tokenizer: of a model.
    model: what its tokenizer.json holds.

  Raises:
    InputError: two ids have the same token.
  """
  texts: list[str | None] = [None] * tokenizer.size
  types = [UNUSED] * tokenizer.size
  for token, n in model['model']['vocab'].items():
    texts[n] = token
    is_byte = model['model'].get('byte_fallback') and BYTE_TOKEN.fullmatch(
      token
    )
    types[n] = BYTE if is_byte else NORMAL
  for token in model.get('added_tokens') or []:
    texts[token['id']] = token['content']
    types[token['id']] = CONTROL if token.get('special') else USER_DEFINED
  unknown = model['model'].get('unk_token')
  if unknown in texts:
    types[texts.index(unknown)] = UNKNOWN
  boundary = tokenizer.boundary
  types[boundary] = CONTROL
  named = [
    f'[PAD{n}]' if token is None else token for n, token in enumerate(texts)
  ]
  if len({*named}) < len(named):
    twice = next(token for token in named if named.count(token) > 1)
    errors.refuse('data.tokenizer', twice, 'two ids of it have this token')
  return named, types


def scores(texts: Sequence[str], model: Mapping[str, Any]) -> list[float]:
  """Returns a score for each token: the first merge makes the best."""
  made: dict[str, float] = {}
  for rank, pair in enumerate(model['model'].get('merges') or []):
    left, right = pair.split(' ') if isinstance(pair, str) else pair
    made.setdefault(left + right, -1.0 - rank)
  return [made.get(token, LEAST) for token in texts]


def begin(model: Mapping[str, Any]) -> int | None:
  """Returns the id that a tokenizer.json puts before a text."""
  processor = model.get('post_processor') or {}
  for one in processor.get('processors') or [processor]:
    if one.get('type') != 'TemplateProcessing':
      continue
    first = (one.get('single') or [{}])[0]
    if name := (first.get('SpecialToken') or {}).get('id'):
      ids = (one.get('special_tokens') or {}).get(name, {}).get('ids')
      return ids[0] if ids and type(ids[0]) is int else None
  return None


def byte_pairs(
  texts: Sequence[str],
  types: Sequence[int],
  merges: Sequence[str],
  split: str,
) -> dict[str, Any]:
  """Returns the tokenizer.json of BPE over bytes.

  Args:
    texts: of the tokens.
    types: of the tokens.
    merges: 'left right', the first one first.
    split: a name of splitting.KNOWN.
  """
  vocabulary = _used(texts, types)
  pairs = [pair.split(' ') for pair in merges]
  known = [
    pair
    for pair in pairs
    if len(pair) == 2 and all(x in vocabulary for x in (*pair, ''.join(pair)))
  ]
  decoder = {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': True,
    'use_regex': False,
  }
  return PARTS | {
    'added_tokens': _added(texts, types),
    'pre_tokenizer': splitting.describe(split),
    'decoder': decoder,
    'model': _bpe(vocabulary, known)
    | {'ignore_merges': splitting.takes_words(split)},
  }


def pieces(
  texts: Sequence[str],
  types: Sequence[int],
  given: np.ndarray,
  adds_space: bool,
) -> dict[str, Any]:
  """Returns the tokenizer.json of BPE by SentencePiece.

  Args:
    texts: of the tokens.
    types: of the tokens.
    given: their scores.
    adds_space: whether a space is put before a text.
  """
  vocabulary = _used(texts, types)
  merges = []
  for token, n in vocabulary.items():
    if types[n] != NORMAL:
      continue
    for at in range(1, len(token)):
      left, right = token[:at], token[at:]
      if left in vocabulary and right in vocabulary:
        order = -float(given[n]), n, vocabulary[left], vocabulary[right]
        merges.append((order, [left, right]))
  merges.sort()
  spaces = {'type': 'Replace', 'pattern': {'String': ' '}, 'content': SPACE}
  before = [{'type': 'Prepend', 'prepend': SPACE}] if adds_space else []
  decoders: list[dict[str, Any]] = [
    {'type': 'Replace', 'pattern': {'String': SPACE}, 'content': ' '},
    {'type': 'ByteFallback'},
    {'type': 'Fuse'},
  ]
  if adds_space:
    strip = {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}
    decoders.append(strip)
  unknown = [token for token, n in vocabulary.items() if types[n] == UNKNOWN]
  return PARTS | {
    'added_tokens': _added(texts, types),
    'normalizer': {'type': 'Sequence', 'normalizers': [*before, spaces]},
    'pre_tokenizer': None,
    'decoder': {'type': 'Sequence', 'decoders': decoders},
    'model': _bpe(vocabulary, [pair for _, pair in merges])
    | {
      'unk_token': unknown[0] if unknown else None,
      'fuse_unk': True,
      'byte_fallback': True,
    },
  }


def _used(texts, types):
  """Returns the id of each token that isn't unused, added ones too.

  Package `tokenizers` gives an added token that isn't in its model the next id,
  whatever tokenizer.json says.
  """
  return {
    token: n
    for n, (token, kind) in enumerate(zip(texts, types, strict=True))
    if kind != UNUSED
  }


def _added(texts, types):
  flags = dict.fromkeys(
    ('single_word', 'lstrip', 'rstrip', 'normalized'), False
  )
  return [
    {'id': n, 'content': token, **flags, 'special': kind == CONTROL}
    for n, (token, kind) in enumerate(zip(texts, types, strict=True))
    if kind in (CONTROL, USER_DEFINED)
  ]


def _bpe(vocabulary, merges):
  return {
    'type': 'BPE',
    'dropout': None,
    'unk_token': None,
    'continuing_subword_prefix': None,
    'end_of_word_suffix': None,
    'fuse_unk': False,
    'byte_fallback': False,
    'ignore_merges': False,
    'vocab': vocabulary,
    'merges': merges,
  }
