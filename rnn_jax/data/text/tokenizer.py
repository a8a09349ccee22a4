"""Text to token ids and back: bytes, characters, byte pairs, or numbers.

One id is the document boundary, which begins and ends every document; no text
encodes to it. It is the last one, except in a pretrained model's tokenizer. A
table has the bytes of each id, so that all kinds decode in the same way, also
as a stream.
"""

import hashlib
import inspect
import json
import os
import re
import types
import unicodedata
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer_file
from rnn_jax.data.text import tokenizer_library
from rnn_jax.system import files

EMPTY: Mapping[str, Any] = types.MappingProxyType({})
SPACES = b' \n\t\r'
WORDS = re.compile(rb'(?<=[!-~])(?=[ \n\t\r])')  # where a text may be cut

T = TypeVar('T')


class Tokenizer:
  """The contract of a tokenizer; a kind has `encode_document` and `spec`.

  Attributes:
    size: entries of the vocabulary, the boundary included.
    boundary: the id of the document boundary.
    unknown: the id for what the vocabulary lacks; None if it lacks nothing.
    spelled: the bytes of each id.
    lossless: whether decoding restores the text.
    ids_are_bytes: whether the ids of a text are its bytes.
    template: the chat template that frames turns, or None.
  """

  unknown: int | None = None
  lossless = True
  ids_are_bytes = False
  template: chat_template.Template | None = None

  def __init__(
    self, table: Iterable[bytes], boundary: int | None = None
  ) -> None:
    self.spelled = (*table,) if boundary is not None else (*table, b'')
    self.boundary = len(self.spelled) - 1 if boundary is None else boundary

  @property
  def size(self) -> int:
    return len(self.spelled)

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the int32 ids of a text.

    Raises:
      InputError: the vocabulary lacks characters of it, which the message
        names, or it isn't UTF-8.
    """
    string = valid(text)
    ids = self.encode_document(string)
    if self.unknown is not None and self.unknown in ids:
      uncovered = ''.join(sorted(self.uncovered(string)))
      raise errors.InputError(
        f'text {string[:60]!r} has characters outside the vocabulary: '
        f'{uncovered!r}: leave them out'
      )
    return ids

  def encode_document(self, text: str | bytes) -> np.ndarray:
    """Returns int32 ids; characters without a token become `unknown`."""
    raise NotImplementedError

  def encode_documents(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the ids of each text, as `encode_document` does."""
    return [self.encode_document(text) for text in texts]

  def is_cut(self, text: bytes, at: int) -> bool:
    """Returns whether text[:at] and text[at:] have the ids of the whole text.

    Where it isn't known, it is False. Only the text near `at` is looked at.
    """
    del text, at
    return False

  def uncovered(self, text: str) -> set[str]:
    """Returns the characters of a text that the vocabulary lacks."""
    del text
    return set()

  def decode_bytes(self, ids: npt.ArrayLike) -> bytes:
    """Returns the bytes of ids; either end may be part of a character."""
    return b''.join(self.spelled[i] for i in np.asarray(ids).ravel())

  def decode(self, ids: npt.ArrayLike) -> str:
    """Returns the text of ids; a cut character becomes U+FFFD."""
    return self.decode_bytes(ids).decode(errors='replace')

  def spec(self) -> dict[str, Any]:
    """Returns what `from_spec` restores the tokenizer from, JSON-ready."""
    raise NotImplementedError

  def digest(self) -> str:
    """Returns a name for the tokenizer, in hexadecimal digits."""
    text = json.dumps(self.spec(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

  def save(self, path: str | os.PathLike) -> None:
    """Writes one file, which is whole or absent at any time."""
    text = json.dumps(self.spec(), ensure_ascii=False, indent=1)
    files.write_whole(path, text)


class Bytes(Tokenizer):
  """A token is a byte of UTF-8."""

  ids_are_bytes = True

  def __init__(self) -> None:
    super().__init__(bytes([i]) for i in range(256))

  def encode_document(self, text: str | bytes) -> np.ndarray:
    return np.frombuffer(_bytes(text), np.uint8).astype(np.int32)

  def spec(self) -> dict[str, Any]:
    return {'kind': 'bytes'}


class Characters(Tokenizer):
  """A token is a character of the training text."""

  def __init__(self, characters: str) -> None:
    known = isinstance(characters, str) and characters
    if not known or [*characters] != sorted({*characters}):
      raise ValueError('characters must be a text of each once, in order')
    table = [character.encode() for character in characters]
    super().__init__([*table, '\ufffd'.encode()])
    self.unknown = len(table)
    self._characters = characters
    self._codes = _codes(characters)

  def encode_document(self, text: str | bytes) -> np.ndarray:
    codes = _codes(_string(text))
    unknown = len(self._characters)
    ids = np.searchsorted(self._codes, codes).clip(max=unknown - 1)
    return np.where(self._codes[ids] == codes, ids, unknown).astype(np.int32)

  def is_cut(self, text: bytes, at: int) -> bool:
    return 0 < at < len(text) and text[at] & 0xC0 != 0x80

  def uncovered(self, text: str) -> set[str]:
    return set(text) - set(self._characters)

  def spec(self) -> dict[str, Any]:
    return {'kind': 'characters', 'characters': self._characters}


class BytePairs(Tokenizer):
  """A token is a frequent string, of bytes or (lossy) of words."""

  def __init__(self, model: dict[str, Any]) -> None:
    tokenizer_file.check(model)
    self._model = model
    self._library = tokenizer_library.make(model)
    vocabulary = self._library.vocabulary()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    self.lossless = tokenizer_file.UNKNOWN not in vocabulary
    self.unknown = vocabulary.get(tokenizer_file.UNKNOWN)
    self._alphabet = set(''.join(tokens))
    self._splits_at_spaces = tokenizer_file.splits_at_spaces(model)
    self._lowercase = model.get('normalizer') == tokenizer_file.LOWERCASE
    super().__init__(
      map(
        tokenizer_file.byte_token
        if self.lossless
        else tokenizer_file.word_token,
        tokens,
      )
    )

  def encode_document(self, text: str | bytes) -> np.ndarray:
    string = _string(text)
    return self._library.encode([string])[0]

  def encode_documents(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    if not self._splits_at_spaces:
      return self._library.encode([*map(_string, texts)])
    # The package is slow, and most words occur often.
    numbers: dict[bytes, int] = {}
    chosen = [
      [numbers.setdefault(x, len(numbers)) for x in WORDS.split(_bytes(text))]
      for text in texts
    ]
    ids = self._library.encode([word.decode() for word in numbers])
    return [np.concatenate([ids[n] for n in each]) for each in chosen]

  def is_cut(self, text: bytes, at: int) -> bool:
    return self._splits_at_spaces and _begins_space(text, at)

  def uncovered(self, text: str) -> set[str]:
    read = text.lower() if self._lowercase else text
    return set(''.join(read.split())) - self._alphabet

  def spec(self) -> dict[str, Any]:
    return {'kind': 'bpe', 'model': self._model}


class Numbers(Tokenizer):
  """A token is an integer in digits, with a space before it.

  For a model that comes without its vocabulary: its text is its ids.
  """

  lossless = False  # several spaces become one

  def __init__(self, size: int) -> None:
    _check_size(size)
    super().__init__(f' {n}'.encode() for n in range(size - 1))

  def encode_document(self, text: str | bytes) -> np.ndarray:
    words = _string(text).split()
    for word in words:
      if not word.isdecimal() or int(word) >= self.boundary:
        raise errors.InputError(
          f"text {word[:60]!r} isn't an id: give numbers from 0 to "
          f'{self.boundary - 1}, separated by spaces'
        )
    return np.array(list(map(int, words)), np.int32)

  def is_cut(self, text: bytes, at: int) -> bool:
    return _begins_space(text, at)

  def spec(self) -> dict[str, Any]:
    return {'kind': 'numbers', 'size': self.size}


class Pretrained(Tokenizer):
  """A pretrained model's tokenizer, a tokenizer.json of package `tokenizers`.

  Its special tokens are recognized in a text, except where the text has that of
  the boundary: all special tokens of such a text are plain text.

  Args:
    model: what tokenizer.json holds.
    size: entries of the model's vocabulary, of which the last may be unused.
    boundary: the id of the document boundary.
    template: `spec` of the model's chat template, in which the boundary ends
      what the model writes; None: it has none.

  Raises:
    ValueError: the tokenizer has more entries, or doesn't name a token's bytes.
  """

  def __init__(
    self,
    model: dict[str, Any],
    size: int,
    boundary: int,
    template: Mapping[str, Any] | None = None,
  ) -> None:
    _check_size(size)
    tokenizer_file.check(model, size)
    if not tokenizer_file.is_id(boundary, size):
      raise ValueError(f'its boundary {boundary!r} is not below {size}')
    self._model = model
    self._library = tokenizer_library.make(model)
    vocabulary = self._library.vocabulary()
    if (largest := max(vocabulary.values(), default=0)) >= size:
      raise ValueError(f'it has id {largest}, and the model {size} entries')
    added = model.get('added_tokens') or []
    over_bytes = tokenizer_file.is_byte_level(model)
    spell = tokenizer_file.byte_token if over_bytes else tokenizer_file.piece
    plain = {token['content'] for token in added}  # which aren't spelled so
    table = [b''] * size
    for token, n in vocabulary.items():
      table[n] = token.encode() if token in plain else spell(token)
    if template is not None:
      end = next((x for x, n in vocabulary.items() if n == boundary), None)
      if end is None:
        raise ValueError(f'its boundary {boundary} has no token')
      self.template = chat_template.Template(**_checked(template), end=end)
    table[boundary] = b''
    self.lossless = over_bytes and tokenizer_file.keeps_text(model)
    self.unknown = vocabulary.get(model['model'].get('unk_token'))
    super().__init__(table, boundary)

  def encode_document(self, text: str | bytes) -> np.ndarray:
    return self.encode_documents([text])[0]

  def encode_documents(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    strings = [*map(_string, texts)]
    return [
      self._as_plain(string) if self.boundary in ids else ids
      for string, ids in zip(
        strings, self._library.encode(strings), strict=True
      )
    ]

  def _as_plain(self, string):
    return self._library.encode([string], special=False)[0]

  def encode_rendered(
    self, texts: Sequence[Sequence[str]]
  ) -> list[list[np.ndarray]]:
    """Returns the ids of each part of texts that a chat template rendered.

    Special tokens are recognized, the boundary's as well. A part has the ids by
    which it continues the one before it, if that keeps its own.
    """
    parts = [part for text in texts for part in text]
    alone = self._library.encode(parts)
    if self.lossless:
      return grouped(alone, texts)
    # These put a space before a text, which no part but the first has.
    before = [part for text in texts for part in ('', *text)[: len(text)]]
    heads = self._library.encode(before)
    wholes = self._library.encode(
      [head + part for head, part in zip(before, parts, strict=True)]
    )
    continued = [
      whole[len(head) :] if np.array_equal(whole[: len(head)], head) else own
      for own, head, whole in zip(alone, heads, wholes, strict=True)
    ]
    return grouped(continued, texts)

  def spec(self) -> dict[str, Any]:
    template = {'template': self.template.spec()} if self.template else {}
    return {
      'kind': 'pretrained',
      'model': self._model,
      'size': self.size,
      'boundary': self.boundary,
      **template,
    }


class Scales(Bytes):
  """Of series of numbers: how each was scaled, in the place of a vocabulary.

  Args:
    scaling: one of SCALINGS, see data/series/scaling.py.
    log: whether logarithms are scaled.
    fitted: [location, scale] by the name of a series; of several targets those
      of each, one after the other.
    covariates: the same by series and column, see data/series/covariates.py.
    numbers: the same by static column.
    categories: the values by static column, sorted.

  Raises:
    ValueError: something isn't of its type.
  """

  def __init__(
    self,
    scaling: str,
    log: bool,
    fitted: Mapping[str, list[float]],
    covariates: Mapping[str, Mapping[str, list[float]]] = EMPTY,
    numbers: Mapping[str, list[float]] = EMPTY,
    categories: Mapping[str, list[str]] = EMPTY,
  ) -> None:
    super().__init__()
    if scaling not in SCALINGS or not isinstance(log, bool):
      raise ValueError(f'scaling={scaling!r}, log={log!r}')
    self.scaling, self.log = scaling, log
    self.fitted = _pairs('fitted', fitted, several=True)
    self.numbers = _pairs('numbers', numbers)
    for name, own in _object('covariates', covariates).items():
      _pairs(f'covariates[{name!r}]', own)
    self.covariates = dict(covariates)
    for name, values in _object('categories', categories).items():
      texts = isinstance(values, list) and all(type(x) is str for x in values)
      if not texts or values != sorted({*values}):
        raise ValueError(f'categories[{name!r}] must be sorted texts')
    self.categories = dict(categories)

  def spec(self) -> dict[str, Any]:
    return {
      'kind': 'scales',
      'scaling': self.scaling,
      'log': self.log,
      'fitted': self.fitted,
      **{
        name: values
        for name in ('covariates', 'numbers', 'categories')
        if (values := getattr(self, name))
      },
    }


def _object(name, given):
  if not isinstance(given, Mapping):
    raise ValueError(f'{name} must be an object')
  return given


def _pairs(name, given, several=False):
  """Returns a dict of locations and scales."""
  for key, pair in _object(name, given).items():
    pairs = isinstance(pair, list) and all(type(x) is float for x in pair)
    whole = pairs and (len(pair) == 2 or (several and len(pair) % 2 == 0))
    if not whole or min(pair[1::2], default=0) <= 0:
      raise ValueError(f'{name}[{key!r}] must be a location and a scale')
  return dict(given)


SCALINGS = (
  'window',
  'standard_window',
  'mean_abs',
  'standard',
  'robust',
  'counts',
  'none',
)
OF_WINDOWS = 'window', 'standard_window', 'counts'  # steps scale theirs, too
LARGEST = 2**24  # entries of a vocabulary of numbers
PRE_TOKENIZERS = ('byte_level', 'whitespace')  # of BPE
KINDS = {
  'bytes': Bytes,
  'characters': Characters,
  'bpe': BytePairs,
  'numbers': Numbers,
  'pretrained': Pretrained,
  'scales': Scales,
}


def load(
  path: str | os.PathLike, within: str | os.PathLike | None = None
) -> Tokenizer:
  """Reads what `save` wrote.

  Args:
    path: of the file.
    within: as in files.regular.

  Raises:
    InputError: the file is damaged.
  """
  with files.reading(path, 'remove it, or choose another work folder'):
    return from_spec(files.read_json(path, within=within))


def from_spec(spec: Any) -> Tokenizer:
  """Returns the tokenizer that a `Tokenizer.spec()` describes.

  Raises:
    ValueError: it doesn't describe one; names what is wrong.
  """
  if not isinstance(spec, dict):
    raise ValueError('it is no object')
  kind = spec.get('kind')
  if not isinstance(kind, str) or kind not in KINDS:
    raise ValueError(f'kind={kind!r}: choose one of {[*KINDS]}')
  made = KINDS[kind]
  arguments = {name: x for name, x in spec.items() if name != 'kind'}
  try:
    inspect.signature(made).bind(**arguments)
  except TypeError as error:
    raise ValueError(f'of kind {kind!r}: {error}') from None
  return made(**arguments)


def _check_size(size):
  if type(size) is not int or not 2 <= size <= LARGEST:
    raise ValueError(f'size={size!r}: give 2 to {LARGEST:,}')


def _checked(template):
  """Returns the spec of a chat template, of which the types are right."""
  if not isinstance(template, dict) or template.keys() != {'text', 'tokens'}:
    raise ValueError('template must be an object of text and tokens')
  tokens = template['tokens']
  texts = [*tokens.values()] if isinstance(tokens, dict) else [None]
  if not all(tokenizer_file.is_text(x) for x in (template['text'], *texts)):
    raise ValueError('template: give texts')
  return template


def valid(text: str | bytes) -> str:
  """Returns a text as a string that UTF-8 can encode, or raises InputError."""
  try:
    return _bytes(text).decode()
  except UnicodeError as error:
    raise errors.InputError(
      f"text {text[:60]!r} isn't UTF-8: {error}"
    ) from None


def grouped(values: Iterable[T], like: Iterable[Sequence]) -> list[list[T]]:
  """Returns the values in groups as large as those of `like`."""
  rest = iter(values)
  return [[next(rest) for _ in group] for group in like]


def _begins_space(text, at):
  """Whether white space begins at a place of a text in UTF-8."""
  if not 0 < at < len(text) or text[at] not in SPACES:
    return False
  if text[at - 1] < 128:
    return 32 < text[at - 1] < 127
  (*_, last) = text[max(at - 4, 0) : at].decode(errors='ignore') or ' '
  return unicodedata.category(last)[0] not in 'CZ'


def _string(text):
  return text if isinstance(text, str) else text.decode()


def _bytes(text):
  return text.encode() if isinstance(text, str) else text


def _codes(text):
  return np.frombuffer(text.encode('utf-32-le'), np.uint32)
