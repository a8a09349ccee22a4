"""The vocabulary of a file: tokens and their types, merges or scores.

    tokenizer.ggml.model        gpt2: byte pairs, with merges
                                llama: SentencePiece, with scores
                                none: ids only
    tokenizer.ggml.pre          how texts are split before byte pairs
    tokenizer.ggml.tokens, .token_type, .merges, .scores
    tokenizer.ggml.bos_token_id, .eos_token_id, .add_bos_token
    tokenizer.chat_template
    tokenizer.huggingface.json  all of a tokenizer.json, which llama.cpp ignores

The boundary is the end of a text; in a vocabulary that was made here it begins
one as well. Merges of SentencePiece are those pairs of tokens that make a
token, the highest score first.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import standard_tokenizer
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.interop.formats.hf import tokenizer_files
from rnn_jax.interop.gguf import splitting
from rnn_jax.interop.gguf import tokens as tokens_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

GGML = 'tokenizer.ggml'
MODEL, PRE = f'{GGML}.model', f'{GGML}.pre'
TOKENS, TYPES = f'{GGML}.tokens', f'{GGML}.token_type'
MERGES, SCORES = f'{GGML}.merges', f'{GGML}.scores'
BEGIN, END = f'{GGML}.bos_token_id', f'{GGML}.eos_token_id'
OTHERS = {  # and how templates and a tokenizer_config.json name them
  BEGIN: 'bos_token',
  END: 'eos_token',
  f'{GGML}.unknown_token_id': 'unk_token',
  f'{GGML}.padding_token_id': 'pad_token',
}
ADDS_BEGIN, ADDS_SPACE = f'{GGML}.add_bos_token', f'{GGML}.add_space_prefix'
TEMPLATE = 'tokenizer.chat_template'
WHOLE = 'tokenizer.huggingface.json'
BYTE_PAIRS, PIECES, NUMBERS = 'gpt2', 'llama', 'none'
SCHEMES = ('always', 'first')  # of a space before a text
REMEDY = 'give --tokenizer'


def write(bundle: bundle_lib.Bundle) -> dict[str, Any]:
  """Returns the values of a model's vocabulary.

  Raises:
    InputError: llama.cpp has no such tokenizer.
  """
  tokenizer = bundle.tokenizer
  kind = tokenizer.spec()['kind']
  if kind == 'numbers':
    return {MODEL: NUMBERS}
  model = standard_tokenizer.describe_with_boundary(tokenizer)
  form = _form(kind, model)
  texts, types = tokens_lib.listed(tokenizer, model)
  values = {MODEL: form, TOKENS: texts, TYPES: types}
  if form == BYTE_PAIRS:
    values |= _split(model)
    values[MERGES] = _merges(model) or _no_merges(texts[tokenizer.boundary])
  else:
    values[SCORES] = tokens_lib.scores(texts, model)
    values[ADDS_SPACE] = _adds_space(model)
  values |= {WHOLE: json.dumps(model, ensure_ascii=False, sort_keys=True)}
  if tokenizer.template is not None:
    values[TEMPLATE] = tokenizer.template.text
  return values | _ends(bundle, model, texts)


def _form(kind, model):
  """Returns llama.cpp's name of a tokenizer, given its tokenizer.json."""
  own = model['model']
  over_bytes = kind == 'bytes' or tokenizer_file.is_byte_level(model)
  if own['type'] != 'BPE' or not (over_bytes or own.get('byte_fallback')):
    errors.refuse(
      'data.tokenizer',
      kind,
      f'llama.cpp has no tokenizer like it ({own["type"]}): train with '
      "'bytes', or with 'bpe' and data.pre_tokenizer='byte_level'",
    )
  return BYTE_PAIRS if over_bytes else PIECES


def _split(model):
  name = splitting.name_of(model)
  if name is None:
    logging.warning(
      "llama.cpp doesn't split texts as this tokenizer does, and takes its "
      'default: a prompt may have other ids there'
    )
  return {PRE: name or splitting.DEFAULT}


def _no_merges(boundary):
  """Returns a list that isn't empty, as llama.cpp wants, and merges nothing."""
  return [f'{boundary} {boundary}']


def _merges(model):
  merges = model['model'].get('merges') or []
  return [x if isinstance(x, str) else ' '.join(x) for x in merges]


def _adds_space(model):
  """Whether a text begins with a space that it doesn't have."""
  parts = [
    part
    for name in ('normalizer', 'pre_tokenizer')
    for part in tokenizer_file.parts(model, name)
  ]
  return any(
    part['type'] == 'Prepend' or part.get('prepend_scheme', '') in SCHEMES
    for part in parts
    if part['type'] in ('Prepend', 'Metaspace')
  )


def _ends(bundle, model, texts):
  """Returns the values of what begins and ends a text."""
  tokenizer = bundle.tokenizer
  values = {END: tokenizer.boundary}
  if tokenizer.spec()['kind'] != 'pretrained':
    return values | {BEGIN: tokenizer.boundary, ADDS_BEGIN: True}
  kept = config_json.kept(bundle.kept, tokenizer_files.CONFIG)
  begin = tokens_lib.begin(model)
  given = kept.values.get('add_bos_token')
  adds = given if isinstance(given, bool) else begin is not None
  config = config_json.kept(bundle.kept, config_json.CONFIG)
  if begin is None and type(config.get('bos_token_id')) is int:
    begin = config.whole('bos_token_id', least=0, most=len(texts) - 1)
  if begin is None:
    return values | {ADDS_BEGIN: False}
  return values | {BEGIN: begin, ADDS_BEGIN: adds}


def read(
  path: pathlib.Path,
  given: Mapping[str, Any],
  size: int,
  config: config_lib.Config | None,
) -> tokenizer_lib.Tokenizer:
  """Returns the tokenizer of a file; numbers, if it has none that is known.

  Args:
    path: of the file.
    given: its values.
    size: entries of the model's vocabulary.
    config: that of --config, whose task may know no turns.

  Raises:
    InputError: a value is wrong, or texts are split in an unknown way.
  """
  keys = keys_lib.Keys(path, dict(given))
  model = _tokenizer_json(keys, size)
  if model is None:
    return tokenizer_lib.Numbers(size)
  boundary = _boundary(keys, size)
  template = None
  task = config and config.task
  has_turns = not task or (task.answers and not task.classifies)
  with tokenizer_files.usable(path, REMEDY):
    tokenizer_file.check(model, size)
  if has_turns and (text := keys.text(TEMPLATE, '')):
    strings = _strings(keys)
    template, boundary = tokenizer_files.read_template(
      path, text, strings, model
    )
  with tokenizer_files.usable(path, REMEDY):
    return tokenizer_lib.Pretrained(model, size, boundary, template)


def _tokenizer_json(keys, size):
  """Returns the content of a tokenizer.json, or None."""
  if keys.get(WHOLE) is not None:
    with files.reading(keys.path, f'{WHOLE}: get it again'):
      return files.from_json(keys.text(WHOLE))
  kind = keys.text(MODEL, NUMBERS)
  if kind not in (BYTE_PAIRS, PIECES):
    return None
  texts, types = _listed(keys, size)
  if kind == BYTE_PAIRS:
    split = keys.one_of(PRE, splitting.KNOWN, None)
    return tokens_lib.byte_pairs(texts, types, _texts(keys, MERGES), split)
  adds_space = keys.flag(ADDS_SPACE, True)
  return tokens_lib.pieces(
    texts, types, _numbers(keys, SCORES, len(texts)), adds_space
  )


def _listed(keys, size):
  """Returns the tokens of a file and their types."""
  texts = _texts(keys, TOKENS)
  if len(texts) > size or len({*texts}) != len(texts):
    keys.refuse(
      TOKENS, texts, f'give at most {size:,} tokens, each of them once'
    )
  if keys.get(TYPES) is None:
    return texts, [tokens_lib.NORMAL] * len(texts)
  return texts, _numbers(keys, TYPES, len(texts)).astype(int).tolist()


def _texts(keys, name):
  value = keys.get(name)
  if not isinstance(value, list):
    keys.refuse(name, value, 'give texts')
  return value


def _numbers(keys, name, count):
  value = keys.get(name)
  if not isinstance(value, np.ndarray) or value.shape != (count,):
    keys.refuse(name, value, f'give {count:,} numbers, one for each token')
  if not np.isfinite(value).all():
    keys.refuse(name, value, 'give finite numbers')
  return value


def _boundary(keys, size):
  for name in (END, BEGIN):
    if keys.get(name) is not None:
      return keys.whole(name, least=0, most=size - 1)
  return size - 1


def _strings(keys):
  """Returns the strings of tokens that a template may name."""
  texts = keys.values.get(TOKENS)
  if not isinstance(texts, list):
    return {}
  ids = {
    theirs: keys.whole(name, least=0, most=len(texts) - 1)
    for name, theirs in OTHERS.items()
    if keys.get(name) is not None
  }
  return {theirs: texts[n] for theirs, n in ids.items()}
