"""What is in a tokenizer.json of package `tokenizers`, as far as we read it.

    {"model": {"vocab": {token: id}, "unk_token": ...},
     "added_tokens": [{"id", "content", "lstrip", "rstrip"}],
     "decoder": {"type"}, "pre_tokenizer": {"type", ...}, "normalizer": ...}

The package checks the rest when it makes a tokenizer of it.
"""

import re
from collections.abc import Mapping
from typing import Any

PARTS = ('decoder', 'pre_tokenizer', 'normalizer')
FLAGS = ('lstrip', 'rstrip')
UNKNOWN = '<unknown>'  # the token of BPE over words for others
LOWERCASE = {'type': 'Lowercase'}  # a normalizer that keeps white space


def check(model: Any, size: int | None = None) -> None:
  """Checks the types and ranges of what is read of a tokenizer.json.

  Args:
    model: what the file holds.
    size: entries of the model's vocabulary; None: as many as it has.

  Raises:
    ValueError: names the key that is wrong.
  """
  _check(isinstance(model, dict), 'it', 'an object')
  own = model.get('model')
  _check(isinstance(own, dict), 'model', 'an object')
  unknown = own.get('unk_token')
  _check(unknown is None or isinstance(unknown, str), 'unk_token', 'a text')
  for name in PARTS:
    _check_part(name, model.get(name))
  added = model.get('added_tokens') or []
  _check(isinstance(added, list), 'added_tokens', 'a list')
  for n, token in enumerate(added):
    name = f'added_tokens[{n}]'
    _check(isinstance(token, dict), name, 'an object')
    _check(is_text(token.get('content')), f'{name}.content', 'a text')
    _check(is_id(token.get('id'), size), f'{name}.id', 'an id of the model')
    for flag in FLAGS:
      known = isinstance(token.get(flag, False), bool)
      _check(known, f'{name}.{flag}', 'true or false')


def _check_part(name, part):
  if part is None:
    return
  _check(isinstance(part, dict), name, 'an object')
  _check(isinstance(part.get('type'), str), f'{name}.type', 'a text')
  if part['type'] == 'Sequence':
    for key, items in part.items():
      for n, item in enumerate(items if isinstance(items, list) else ()):
        inner = f'{name}.{key}[{n}]'
        _check(isinstance(item, dict), inner, 'an object')
        _check(isinstance(item.get('type'), str), f'{inner}.type', 'a text')


def is_id(value: Any, size: int | None) -> bool:
  """Returns whether a value is a whole number from 0, below `size`."""
  whole = isinstance(value, int) and not isinstance(value, bool)
  return whole and value >= 0 and (size is None or value < size)


def is_text(value: Any) -> bool:
  """Returns whether a value is a text that UTF-8 can encode."""
  if not isinstance(value, str):
    return False
  try:
    value.encode()
  except UnicodeEncodeError:
    return False
  return True


def splits_at_spaces(model: Mapping[str, Any]) -> bool:
  """Returns whether no token continues from another character to a space.

  The expressions of both pre-tokenizers have that property: a match has white
  space only at its start, or is all white space, and none looks back. A lower
  case depends on no more than the letters around, within a word.
  """
  pre = model.get('pre_tokenizer') or {}
  kind = pre.get('type')
  known = kind == 'Whitespace' or (
    kind == 'ByteLevel'
    and pre.get('use_regex') is True
    and not pre.get('add_prefix_space')
  )
  return known and model.get('normalizer') in (None, LOWERCASE)


def _byte_names():
  """Maps the characters that byte-level BPE writes for bytes to the bytes."""
  shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
  hidden = [byte for byte in range(256) if byte not in shown]
  names = {chr(byte): byte for byte in shown}
  return names | {chr(256 + n): byte for n, byte in enumerate(hidden)}


BYTE_NAMES = _byte_names()


def byte_token(token: str) -> bytes:
  """Returns the bytes of a token of BPE over bytes.

  Raises:
    ValueError: a character of it names no byte.
  """
  try:
    return bytes(BYTE_NAMES[character] for character in token)
  except KeyError as error:
    raise ValueError(f'{error} of token {token[:60]!r} names no byte') from None


def word_token(token: str) -> bytes:
  """Returns the bytes of a token of BPE over words."""
  # The recipe doesn't record where words end: every token gets a space.
  return '\ufffd '.encode() if token == UNKNOWN else f'{token} '.encode()


def is_byte_level(model: Mapping[str, Any]) -> bool:
  """Returns whether the tokens are characters that name bytes."""
  return any(
    part.get('type') == 'ByteLevel' for part in parts(model, 'decoder')
  )


def keeps_text(model: Mapping[str, Any]) -> bool:
  """Returns whether one over bytes encodes all of a text, and no more."""
  added = model.get('added_tokens') or []
  prefixed = any(
    part.get('add_prefix_space') for part in parts(model, 'pre_tokenizer')
  )
  return not (
    prefixed
    or model.get('normalizer')
    or any(token.get('lstrip') or token.get('rstrip') for token in added)
  )


def parts(model: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
  """Returns the parts of one of PARTS in a tokenizer.json."""
  part = model.get(name) or {'type': 'Sequence'}
  if part['type'] != 'Sequence':
    return [part]
  return [
    x for value in part.values() if isinstance(value, list) for x in value
  ]


def piece(token: str) -> bytes:
  """Returns the bytes of a SentencePiece token, '<0x0A>' or '\u2581word'."""
  if re.fullmatch('<0x[0-9A-F]{2}>', token):
    return bytes([int(token[1:-1], 16)])
  return token.replace('\u2581', ' ').encode()


def _check(holds, name, what):
  if not holds:
    raise ValueError(f'{name} must be {what}')
