"""A tokenizer.json applied by package `tokenizers`, here or in a process apart.

What is known to be cheap (tokenizer_rules.py) runs here, at full speed; other
rules run apart.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from rnn_jax import errors
from rnn_jax.data.text import apart
from rnn_jax.data.text import tokenizer_rules

SHOWN = 200  # characters of the package's message
USED = ('version', 'added_tokens', 'normalizer', 'pre_tokenizer', 'model')
REMEDY = (
  'use the tokenizer that the model was published with, or convert the model '
  'without tokenizer.json to use only ids'
)


class Library:
  """The package in this process.

  Raises:
    ValueError: the package can't read it, with its reason.
  """

  def __init__(self, model: dict[str, Any]) -> None:
    self._text = _text(model)
    self._special = self._made()

  def _made(self):
    try:
      return tokenizers.Tokenizer.from_str(self._text)
    except BaseException as error:
      raise ValueError(_message(error)) from error

  @functools.cached_property
  def _plain(self):
    made = self._made()
    made.encode_special_tokens = True
    return made

  def vocabulary(self) -> dict[str, int]:
    """Returns the ids of all tokens, the added ones too."""
    return self._special.get_vocab(with_added_tokens=True)

  def encode(
    self, texts: Sequence[str], special: bool = True
  ) -> list[np.ndarray]:
    """Returns the int32 ids of texts.

    Args:
      texts: what is encoded.
      special: whether special tokens are recognized in them.

    Raises:
      InputError: the tokenizer fails, or takes too long.
    """
    made = self._special if special else self._plain
    try:
      # It doesn't make the places of tokens in the text.
      encodings = made.encode_batch_fast([*texts], add_special_tokens=False)
    except BaseException as error:
      raise errors.InputError(_failed(_message(error))) from error
    return [np.array(each.ids, np.int32) for each in encodings]


class Apart(Library):
  """The package in a process of its own, with limits (apart.py)."""

  def __init__(self, model: dict[str, Any]) -> None:
    try:
      self._process = apart.Process('tokenizer', _text(model))
    except apart.FailedError as error:
      raise ValueError(_failed(str(error))) from error

  def vocabulary(self) -> dict[str, int]:
    return self._process.about['vocabulary']

  def encode(
    self, texts: Sequence[str], special: bool = True
  ) -> list[np.ndarray]:
    request = {'texts': [*texts], 'special': special}
    try:
      answer = self._process.ask(sum(map(len, texts)), request)
    except apart.FailedError as error:
      raise errors.InputError(_failed(str(error))) from error
    return [np.array(ids, np.int32) for ids in answer['ids']]


def make(model: dict[str, Any]) -> Library:
  """Returns what applies a tokenizer.json.

  Raises:
    ValueError: the package can't read it, with its reason.
  """
  return (Library if tokenizer_rules.are_known(model) else Apart)(model)


def _text(model):
  """Returns what encoding needs of a tokenizer.json."""
  return json.dumps({key: model[key] for key in USED if key in model})


def _message(error):
  """Returns the package's words; raises what isn't an error of its."""
  if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
    raise error
  return ' '.join(str(error).split())[:SHOWN]


def _failed(words):
  return (
    f"the model's tokenizer.json can't encode this text ({words}): {REMEDY}"
  )
