"""Makes a tokenizer from the training documents.

BPE: Sennrich et al., "Neural Machine Translation of Rare Words with Subword
Units", 2016; over bytes: Radford et al., "Language Models are Unsupervised
Multitask Learners", 2019.
"""

import functools
import json
import os
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file
from rnn_jax.system import activity

FILE = 'tokenizer.json'
SAMPLED = 2**16  # bytes in a row of a sample of the training text


def load_or_make(
  data: config_lib.Data,
  documents: documents_lib.Documents,
  workdir: str | os.PathLike | None,
) -> tokenizer_lib.Tokenizer:
  """Returns the tokenizer of a run's folder, or makes it and writes it there.

  Args:
    data: section `data` of the config.
    documents: to train on.
    workdir: of the run; None: nothing is written.

  Raises:
    InputError: as `train`, or the folder's is of another kind.
  """
  path = '' if workdir is None else os.path.join(workdir, FILE)
  if os.path.exists(path):
    tokenizer = tokenizer_lib.load(path)
    if (kind := tokenizer.spec()['kind']) != data.tokenizer:
      raise errors.InputError(
        f'data.tokenizer={data.tokenizer!r}: {path} is of kind {kind!r}: '
        'choose another work folder'
      )
    return tokenizer
  with activity.doing('making the tokenizer'):
    options = (
      data.tokenizer,
      data.vocabulary,
      data.pre_tokenizer,
      data.lowercase,
      data.tokenizer_bytes,
    )
    spec = documents.remember(
      f'a tokenizer of {options}', lambda: train(data, documents).spec()
    )
  tokenizer = tokenizer_lib.from_spec(spec)
  if path:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tokenizer.save(path)
  return tokenizer


def train(
  data: config_lib.Data, documents: documents_lib.Documents
) -> tokenizer_lib.Tokenizer:
  """Makes the tokenizer that `data` names from the training documents.

  From all of them, or from `data.tokenizer_bytes` bytes, evenly spaced.

  Raises:
    InputError: `data.vocabulary` is too small, or the tokenizer isn't made from
      text.
  """
  if data.tokenizer == 'bytes':
    return tokenizer_lib.Bytes()
  if data.tokenizer == 'numbers':
    return tokenizer_lib.Numbers(data.vocabulary)
  if data.tokenizer == 'pretrained':
    raise errors.InputError(
      "data.tokenizer='pretrained': it comes with a model: use a work folder "
      'that launch.convert made, or --init_from=RUN'
    )
  if data.tokenizer == 'scales':
    return _scales(documents)
  texts = _sample(documents, data.tokenizer_bytes)
  if data.tokenizer == 'characters':
    return tokenizer_lib.Characters(''.join(sorted(set().union(*texts))))
  return train_byte_pairs(texts, data)


def _scales(documents):
  """Returns what a source of series has fitted to its training part."""
  if not (fitted := getattr(documents.reader, 'scales', None)):
    raise errors.InputError(
      "data.tokenizer='scales': it is for series of numbers, and this source "
      'has texts: choose another one'
    )
  return tokenizer_lib.from_spec(fitted)


def byte_pairs(
  vocabulary: Mapping[str, int], merges: Iterable[Sequence[str]]
) -> tokenizer_lib.BytePairs:
  """Returns the byte-level BPE of a vocabulary and its merges, as in GPT-2.

  Raises:
    ValueError, KeyError: a merge has unknown tokens, ids have gaps, or a token
      isn't bytes.
  """
  if sorted(vocabulary.values()) != [*range(len(vocabulary))]:
    raise ValueError('ids with gaps')
  model = _byte_level()
  spec = json.loads(model.to_str()) | {'added_tokens': []}
  spec['model'] |= {
    'vocab': dict(vocabulary),
    'merges': [list(pair) for pair in merges],
  }
  return tokenizer_lib.BytePairs(spec)


def train_byte_pairs(
  texts: Iterable[str], data: config_lib.Data
) -> tokenizer_lib.BytePairs:
  """Returns BPE of up to `data.vocabulary` tokens, from texts.

  Raises:
    InputError: that are too few.
  """
  over_bytes = data.pre_tokenizer == 'byte_level'
  least = 257 if over_bytes else 3
  if data.vocabulary < least:
    raise errors.InputError(
      f'data.vocabulary={data.vocabulary!r}: give {least} or more'
    )
  pre = tokenizers.pre_tokenizers
  if over_bytes:
    model = _byte_level()
    options: Any = {'initial_alphabet': pre.ByteLevel.alphabet()}
  else:
    model = tokenizers.Tokenizer(
      tokenizers.models.BPE(unk_token=tokenizer_file.UNKNOWN)
    )
    model.pre_tokenizer = pre.Whitespace()
    if data.lowercase:
      model.normalizer = tokenizers.normalizers.Lowercase()
    options = {'special_tokens': [tokenizer_file.UNKNOWN]}
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=data.vocabulary - 1, show_progress=False, **options
  )
  model.train_from_iterator(texts, trainer)
  # An added token would match the string '<unknown>' in a text.
  spec = json.loads(model.to_str()) | {'added_tokens': []}
  trained = tokenizer_lib.BytePairs(spec)
  if trained.size > data.vocabulary:
    raise errors.InputError(
      f'data.vocabulary={data.vocabulary!r}: the single characters of the text '
      f'need {trained.size}: give that or more'
    )
  return trained


def warn_of_unknown(
  tokenizer: tokenizer_lib.Tokenizer,
  documents: Mapping[str, documents_lib.Documents],
) -> None:
  """Warns of held-out documents with characters that training lacks."""
  if tokenizer.unknown is None:
    return
  for split in documents_lib.SPLITS[1:]:
    held_out = documents[split]
    first = held_out.remember(
      f'the first text that {tokenizer.digest()} lacks characters of',
      functools.partial(_first_uncovered, tokenizer, held_out),
    )
    if first:
      logging.warning(
        '%s: %s has characters that no text has that the tokenizer was made '
        'from: %r; each of them counts as one unknown token',
        split,
        *first,
      )


def _sample(documents, limit):
  """Yields texts of up to `limit` bytes in all; of all documents if 0."""
  total = documents.total_bytes
  if not limit or total <= limit:
    yield from (documents.read(n).decode() for n in range(len(documents)))
    return
  count = max(limit // SAMPLED, 1)
  places = np.arange(count) * total // count
  for first, at in documents_lib.locate(documents, places):
    n, start, left = first, at, min(limit, SAMPLED)
    while left > 0 and n < len(documents):
      text = documents.read(n, start, start + left)
      yield text.decode(errors='ignore')  # it may begin within a character
      n, start, left = n + 1, 0, left - len(text)


def _byte_level():
  model = tokenizers.Tokenizer(tokenizers.models.BPE())
  model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  return model


def _first_uncovered(tokenizer, documents):
  """Returns the name of a document and its unknown characters, or None."""
  for n in range(len(documents)):
    text = documents.read(n).decode()
    if uncovered := tokenizer.uncovered(text):
      return documents.name(n), ''.join(sorted(uncovered))
  return None
