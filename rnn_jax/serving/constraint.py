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
from rnn_jax.serving import sampler

KINDS = ('json_schema', 'regex')
LONGEST = 100_000  # characters of a grammar
SHOWN = 60


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
      try:
        json.loads(self.grammar)
      except ValueError as error:
        errors.refuse(
          'constraint.grammar',
          self.grammar[:SHOWN],
          f"it isn't JSON ({error}): give a JSON schema",
        )


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
    """Returns the tokens that may come next, M words of 32 bits."""
    mask = np.zeros(sampler.words(self._size), np.uint32)
    if self._inner.is_stopped():
      mask[self._boundary // 32] = np.uint32(1 << self._boundary % 32)
      return mask
    given = self._inner.compute_bitmask()
    return np.frombuffer(given, np.uint32)[: len(mask)]

  def read(self, tokens: Sequence[int]) -> None:
    """Reads new tokens.

    Raises:
      RuntimeError: one doesn't follow the grammar.
    """
    for token in tokens:
      if token == self._boundary and self._inner.is_stopped():
        return
      if not self._inner.consume_token(token):
        raise RuntimeError(
          f'token {token} is outside the grammar: {self._inner.get_error()}'
        )


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
    self.tokens = [tokenizer.decode_bytes([n]) for n in range(tokenizer.size)]
    self.tokens[tokenizer.boundary] = b'<|boundary|>'
    self.special_token_ids = [tokenizer.boundary]
    if tokenizer.unknown is not None:
      self.tokens[tokenizer.unknown] = b'<|unknown|>'
      self.special_token_ids.append(tokenizer.unknown)
    self._tokenizer = tokenizer

  def __call__(self, text):
    text = text.decode(errors='replace') if isinstance(text, bytes) else text
    return self._tokenizer.encode_document(text).tolist()
