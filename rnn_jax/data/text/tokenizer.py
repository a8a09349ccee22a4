"""Text to token ids and back: bytes, characters, byte pairs, or numbers.

Ids of the text come first. The document boundary, which begins and ends every
document, is an id that no text encodes to. A table holds the bytes that each
id stands for, so that decoding is the same for all kinds and may be streamed.

BPE: Sennrich et al., "Neural Machine Translation of Rare Words with Subword
Units", 2016; over bytes: Radford et al., "Language Models are Unsupervised
Multitask Learners", 2019.
"""

import json
import os
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tokenizers

from rnn_jax import config
from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data.text import documents as documents_lib

UNKNOWN = '<unknown>'


class Tokenizer:
  """The contract; a kind says what `encode_document` and `spec` are.

  size: entries of the vocabulary, the boundary included.
  boundary: the id of the document boundary.
  unknown: the id of what the vocabulary lacks, or None if it lacks nothing.
  lossless: whether decoding gives back the text.
  whole_words: whether text is best cut in front of a space.
  """

  unknown = None
  lossless = True
  whole_words = False

  def __init__(self, table: Iterable[bytes]):
    self._table = (*table, b'')
    self.boundary = len(self._table) - 1

  @property
  def size(self) -> int:
    return len(self._table)

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the int32 ids of a text that the vocabulary covers.

    Raises:
      InputError: it doesn't, and the message names the characters; or it is
        no UTF-8.
    """
    text = _valid(text)
    ids = self.encode_document(text)
    if self.unknown is not None and self.unknown in ids:
      strange = ''.join(sorted(self.uncovered(text)))
      raise errors.InputError(
        f'text {text[:60]!r} holds characters outside the '
        f'vocabulary: {strange!r}: leave them out'
      )
    return ids

  def encode_document(self, text: str | bytes) -> np.ndarray:
    """Returns int32 ids; what the vocabulary lacks becomes `unknown`."""
    raise NotImplementedError

  def uncovered(self, text: str) -> set[str]:
    """Returns the characters of a text that the vocabulary lacks."""
    del text
    return set()

  def decode_bytes(self, ids) -> bytes:
    """Returns the bytes of ids; a character may be cut at either end."""
    return b''.join(self._table[i] for i in np.asarray(ids).ravel())

  def decode(self, ids) -> str:
    """Returns the text of ids; a cut character shows as U+FFFD."""
    return self.decode_bytes(ids).decode(errors='replace')

  def spec(self) -> dict:
    """Returns what `load` makes the tokenizer from again, JSON-ready."""
    raise NotImplementedError

  def save(self, path: str | os.PathLike) -> None:
    """Writes one file, which is whole or absent at any time."""
    text = json.dumps(self.spec(), ensure_ascii=False, indent=1)
    files.write_whole(path, text)


class Bytes(Tokenizer):
  """A token is a byte of UTF-8."""

  def __init__(self):
    super().__init__(bytes([i]) for i in range(256))

  def encode_document(self, text):
    return np.frombuffer(_bytes(text), np.uint8).astype(np.int32)

  def spec(self):
    return {'kind': 'bytes'}


class Characters(Tokenizer):
  """A token is a character of the training text."""

  def __init__(self, characters: str):
    table = [character.encode() for character in characters]
    super().__init__([*table, '\ufffd'.encode()])
    self.unknown = len(table)
    self._characters = characters
    self._codes = _codes(characters)

  def encode_document(self, text):
    codes = _codes(_string(text))
    ids = np.searchsorted(self._codes, codes).clip(max=self.unknown - 1)
    return np.where(self._codes[ids] == codes, ids, self.unknown).astype(
      np.int32
    )

  def uncovered(self, text):
    return set(text) - set(self._characters)

  def spec(self):
    return {'kind': 'characters', 'characters': self._characters}


class BytePairs(Tokenizer):
  """A token is a frequent string. Over bytes, or over words (lossy)."""

  whole_words = True

  def __init__(self, model: dict):
    self._model = model
    self._tokenizer = _from_json(json.dumps(model))
    vocabulary = self._tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    self.lossless = UNKNOWN not in vocabulary
    self.unknown = vocabulary.get(UNKNOWN)
    self._alphabet = set(''.join(tokens))
    super().__init__(map(_byte_token if self.lossless else _word_token, tokens))

  def encode_document(self, text):
    encoding = self._tokenizer.encode(_string(text), add_special_tokens=False)
    return np.array(encoding.ids, np.int32)

  def uncovered(self, text):
    return set(''.join(text.split())) - self._alphabet

  def spec(self):
    return {'kind': 'bpe', 'model': self._model}


class Numbers(Tokenizer):
  """A token is a whole number, written in digits, with a space before it.

  For a model that came without its vocabulary: its text is its ids.
  """

  lossless = False  # of several spaces one is left
  whole_words = True

  def __init__(self, size: int):
    super().__init__(f' {n}'.encode() for n in range(size - 1))

  def encode_document(self, text):
    words = _string(text).split()
    for word in words:
      if not word.isdecimal() or int(word) >= self.boundary:
        raise errors.InputError(
          f'text {word[:60]!r} is no id: a vocabulary of numbers has 0 to '
          f'{self.boundary - 1}, with spaces between'
        )
    return np.array(list(map(int, words)), np.int32)

  def spec(self):
    return {'kind': 'numbers', 'size': self.size}


PRE_TOKENIZERS = ('byte_level', 'whitespace')  # of BPE
KINDS = {
  'bytes': Bytes,
  'characters': Characters,
  'bpe': BytePairs,
  'numbers': Numbers,
}


def train(data: config.Data, documents: documents_lib.Documents) -> Tokenizer:
  """Makes the tokenizer that `data` names from the training documents."""
  if data.tokenizer == 'bytes':
    return Bytes()
  if data.tokenizer == 'numbers':
    return Numbers(data.vocabulary)
  texts = (documents.read(n).decode() for n in range(len(documents)))
  if data.tokenizer == 'characters':
    return Characters(''.join(sorted(set().union(*texts))))
  return _train_byte_pairs(texts, data)


def load(path: str | os.PathLike) -> Tokenizer:
  """Reads what `save` wrote.

  Raises:
    InputError: the file is damaged.
  """
  try:
    with open(path, encoding='utf-8') as file:
      spec = json.load(file)
    return from_spec(spec)
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.InputError(
      f'{path} is no tokenizer of ours ({error}): remove it, or choose '
      'another work folder'
    ) from None


def from_spec(spec: dict) -> Tokenizer:
  """Returns the tokenizer that a `Tokenizer.spec()` describes.

  Raises:
    ValueError, KeyError, TypeError, AttributeError: it is none.
  """
  spec = dict(spec)
  return KINDS[spec.pop('kind')](**spec)


def byte_pairs(
  vocabulary: Mapping[str, int], merges: Iterable[Sequence[str]]
) -> BytePairs:
  """Returns the byte-level BPE of a vocabulary and its merges, as GPT-2's.

  Raises:
    ValueError, KeyError: a merge of tokens that aren't there, ids with gaps,
      or tokens that aren't bytes.
  """
  if sorted(vocabulary.values()) != [*range(len(vocabulary))]:
    raise ValueError('ids with gaps')
  model = _byte_level()
  spec = json.loads(model.to_str()) | {'added_tokens': []}
  spec['model'] |= {
    'vocab': dict(vocabulary),
    'merges': [list(pair) for pair in merges],
  }
  return BytePairs(spec)


def _byte_level():
  model = tokenizers.Tokenizer(tokenizers.models.BPE())
  model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  return model


def _train_byte_pairs(texts, data):
  over_bytes = data.pre_tokenizer == 'byte_level'
  least = 257 if over_bytes else 3
  if data.vocabulary < least:
    raise errors.InputError(
      f'data.vocabulary={data.vocabulary!r}: give {least} or more'
    )
  pre = tokenizers.pre_tokenizers
  if over_bytes:
    model = _byte_level()
    options = {'initial_alphabet': pre.ByteLevel.alphabet()}
  else:
    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
    model.pre_tokenizer = pre.Whitespace()
    options = {'special_tokens': [UNKNOWN]}
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=data.vocabulary - 1, show_progress=False, **options
  )
  model.train_from_iterator(texts, trainer)
  # As an added token it would be found in the text itself.
  spec = json.loads(model.to_str()) | {'added_tokens': []}
  trained = BytePairs(spec)
  if trained.size > data.vocabulary:
    raise errors.InputError(
      f'data.vocabulary={data.vocabulary!r}: the characters of the text alone '
      f'need {trained.size}: give that or more'
    )
  return trained


def _from_json(model):
  try:
    return tokenizers.Tokenizer.from_str(model)
  except Exception as error:  # The package raises nothing narrower.
    raise ValueError(str(error)) from error


def _valid(text):
  """Returns a text as a string that UTF-8 can write, or raises InputError."""
  try:
    return _bytes(text).decode()
  except UnicodeError as error:
    raise errors.InputError(
      f'text {text[:60]!r} is no UTF-8: {error}'
    ) from None


def _string(text):
  return text if isinstance(text, str) else text.decode()


def _bytes(text):
  return text.encode() if isinstance(text, str) else text


def _codes(text):
  return np.frombuffer(text.encode('utf-32-le'), np.uint32)


def _byte_names():
  """Maps the character that byte-level BPE writes for a byte to the byte."""
  shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
  hidden = [byte for byte in range(256) if byte not in shown]
  names = {chr(byte): byte for byte in shown}
  return names | {chr(256 + n): byte for n, byte in enumerate(hidden)}


BYTE_NAMES = _byte_names()


def _byte_token(token):
  return bytes(BYTE_NAMES[character] for character in token)


def _word_token(token):
  # The recipe keeps no trace of where words end: every token gets a space.
  return '\ufffd '.encode() if token == UNKNOWN else f'{token} '.encode()
