"""Texts that follow a JSON schema or a regular expression, by llguidance.

    Constraint('json_schema', '{"type": "object"}')
    Constraint('regex', '[0-9]+')

A matcher reads each new token and says which ones may follow, as bits of 32-bit
words (sampler.py). The boundary may come where the text is complete. JSON has
no spaces between values. The package is the extra `constrain`:
https://github.com/guidance-ai/llguidance.
"""

import dataclasses
import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import sampler

KINDS = ('json_schema', 'regex')
LONGEST = 100_000  # characters of a grammar
DEEPEST = 64  # levels of a schema
SHOWN = 60
LINE = 160  # characters of the library's words
PATTERNS = 4  # that a text must match at once: their automaton is a product
REMEDY = 'give a smaller one, or one without recursion'


@dataclasses.dataclass(frozen=True)
class Constraint:
  """What a text must be.

  Raises:
    InputError: the kind is unknown, the schema isn't JSON, or it is too long.
  """

  kind: str  # one of KINDS
  grammar: str  # the schema, or the expression, which all of the text matches

  def __post_init__(self):
    if self.kind not in KINDS:
      errors.refuse('constraint.kind', self.kind, f'choose one of {KINDS}')
    if len(self.grammar) > LONGEST:
      errors.refuse(
        'constraint.grammar',
        self.grammar[:SHOWN] + '...',
        f'{len(self.grammar):,} characters: give at most {LONGEST:,}',
      )
    if self.kind == 'json_schema':
      _check_schema(self.grammar)


class Grammars:
  """Makes the matchers of one tokenizer; thread-safe."""

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer) -> None:
    self._tokenizer = tokenizer
    self._wrapped: Any = None
    self._lock = threading.Lock()

  def matcher(self, constraint: Constraint) -> 'Matcher':
    """Returns the matcher of a constraint, before the first token.

    Raises:
      InputError: llguidance isn't installed, can't follow the constraint, or
        the tokenizer loses spaces.
    """
    library = _library()
    with self._lock:
      if self._wrapped is None:
        self._wrapped = _wrap(library, self._tokenizer)
    try:
      grammar = _grammar(library, constraint)
      inner = library.LLMatcher(self._wrapped, grammar, log_level=0)
      problem = inner.get_error()
    except (ValueError, RuntimeError) as error:
      problem = str(error)
    if problem:
      errors.refuse(
        'constraint.grammar',
        constraint.grammar[:SHOWN],
        f"llguidance can't follow it: {problem.strip().splitlines()[0]}",
      )
    return Matcher(inner, self._tokenizer)


class Matcher:
  """Where a text is in its grammar."""

  def __init__(self, inner: Any, tokenizer: tokenizer_lib.Tokenizer) -> None:
    self._inner = inner
    self._boundary = tokenizer.boundary
    self._size = tokenizer.size

  def copy(self) -> 'Matcher':
    """Returns a matcher at the same place, for another completion."""
    made = Matcher.__new__(Matcher)
    made.__dict__.update(self.__dict__)
    made._inner = self._inner.deep_copy()
    return made

  def allowed(self) -> np.ndarray:
    """Returns the tokens that may come next, M words of 32 bits.

    Raises:
      InputError: the grammar takes more than it may.
    """
    mask = np.zeros(sampler.words(self._size), np.uint32)
    if self._inner.is_stopped():
      mask[self._boundary // 32] = np.uint32(1 << self._boundary % 32)
      return mask
    given = self._inner.compute_bitmask()
    if self._inner.is_error():
      raise self._failed()
    return np.frombuffer(given, np.uint32)[: len(mask)]

  def forced(self, count: int) -> list[int]:
    """Returns the next tokens, at most `count`, that may only be one each.

    Raises:
      InputError: the grammar takes more than it may.
    """
    tokens: list[int] = []
    read = 0
    while len(tokens) < count and (token := _only(self.allowed())) is not None:
      tokens.append(token)
      if self._inner.is_stopped():
        break
      self.read([token])
      read += 1
    if read and not self._inner.rollback(read):
      raise self._failed()
    return tokens

  def read(self, tokens: Sequence[int]) -> None:
    """Reads new tokens.

    Raises:
      InputError: the grammar takes more than it may.
      RuntimeError: one doesn't follow the grammar.
    """
    for token in tokens:
      if token == self._boundary and self._inner.is_stopped():
        return
      if self._inner.consume_token(token):
        continue
      if 'limit' in _first_line(self._inner.get_error()):
        raise self._failed()
      raise RuntimeError(f'token {token} is outside the grammar')

  def _failed(self):
    # Of the library's words the first line has no text of the grammar.
    return errors.InputError(
      'constraint.grammar: it takes more than a server may spend on it '
      f'({_first_line(self._inner.get_error())[:LINE]}): {REMEDY}'
    )


def _only(mask):
  """Returns the only token of a mask, or None if there are several."""
  places = np.flatnonzero(mask)
  word = int(mask[places[0]]) if len(places) == 1 else 0
  if not word or word & (word - 1):
    return None
  return sampler.WORD * int(places[0]) + word.bit_length() - 1


def _first_line(text):
  return (text or '').strip().partition('\n')[0]


def _check_schema(text):
  """Checks that a text is JSON, and not nested deep.

  Raises:
    InputError: it isn't; the message has no text of what is nested.
  """
  try:
    schema = json.loads(text)
    level, rest = 0, [schema]
  except ValueError as error:
    errors.refuse(
      'constraint.grammar',
      text[:SHOWN],
      f"it isn't JSON ({error}): give a JSON schema",
    )
  except RecursionError:
    schema, level, rest = None, DEEPEST, [None]
  while rest:
    level += 1
    if level > DEEPEST:
      raise errors.InputError(
        f'constraint.grammar: a schema that is nested more than {DEEPEST} '
        'levels deep: give a flatter one'
      )
    inner = [x.values() if isinstance(x, dict) else x for x in rest]
    rest = [
      value
      for values in inner
      if not isinstance(values, str | int | float | None)
      for value in values
    ]
  _check_patterns(schema)


def _check_patterns(schema):
  """Checks that no text must match many expressions at once."""
  if isinstance(schema, dict) and isinstance(schema.get('allOf'), list):
    if _patterns(schema['allOf']) > PATTERNS:
      raise errors.InputError(
        f'constraint.grammar: an allOf with more than {PATTERNS} patterns: '
        'give one pattern for them'
      )
  inner = schema.values() if isinstance(schema, dict) else schema
  if isinstance(inner, str | int | float | None):
    return
  for value in inner:
    _check_patterns(value)


def _patterns(value):
  """Returns how many expressions of texts a value holds."""
  if isinstance(value, list):
    return sum(map(_patterns, value))
  if not isinstance(value, dict):
    return 0
  own = sum(isinstance(value.get(key), str) for key in ('pattern', 'format'))
  return own + sum(map(_patterns, value.values()))


def _grammar(library, constraint):
  if constraint.kind == 'regex':
    return library.LLMatcher.grammar_from_regex(constraint.grammar)
  # Else a small model may write spaces between two values without end.
  return library.LLMatcher.grammar_from_json_schema(
    constraint.grammar, defaults={'whitespace_flexible': False}
  )


def _library():
  try:
    import llguidance
  except ImportError:
    raise errors.InputError(
      'constraint: the package llguidance is missing: pip install '
      "'rnn_jax[constrain]'"
    ) from None
  return llguidance


def _wrap(library, tokenizer):
  if not tokenizer.lossless:
    raise errors.InputError(
      f'constraint: the tokenizer {tokenizer.spec()["kind"]!r} of this model '
      'loses spaces, and grammars need them: train with data.tokenizer='
      "'bytes', 'characters' or 'bpe' over bytes"
    )
  return library.LLTokenizer(library.TokenizerWrapper(_Vocabulary(tokenizer)))


class _Vocabulary:
  """A tokenizer as llguidance reads it."""

  bos_token_id = None

  def __init__(self, tokenizer) -> None:
    self.eos_token_id = tokenizer.boundary
    self.tokens = [*tokenizer.spelled]
    self.tokens[tokenizer.boundary] = b'<|boundary|>'
    self.special_token_ids = [tokenizer.boundary]
    if tokenizer.unknown is not None:
      self.tokens[tokenizer.unknown] = b'<|unknown|>'
      self.special_token_ids.append(tokenizer.unknown)
    self._tokenizer = tokenizer

  def __call__(self, text):
    text = text.decode(errors='replace') if isinstance(text, bytes) else text
    return self._tokenizer.encode_document(text).tolist()
