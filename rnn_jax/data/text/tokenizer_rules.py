"""Which tokenizer.json may run in this process: those whose cost is known.

The rules of a tokenizer.json are a stranger's program: a regular expression may
backtrack without end or panic, replacements of replacements may fill the
memory, and the package can be stopped only with its process. Those of published
models are harmless: their expressions never try a second way, and a text
becomes little longer. What isn't known to be so runs apart
(tokenizer_library.py); it isn't refused.
"""

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from typing import Any

GROWTH = 1024  # times as long as a text may become
PARTS, DEPTH = 256, 16  # of normalizers and pre-tokenizers
TEXT = 256  # characters of an option
TOKEN = 4096  # of a token
ADDED = 2**21  # of all added tokens
CHARSMAP = 2**22  # of a precompiled map of characters, in base 64
WORD = 10_000  # the most characters of a word of WordPiece
EXPRESSION = 2000  # characters
COUNT = 64  # the most of a bounded repetition
LETTERS = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]'
SMALL = r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# Alternatives that try a second way, but end within what one of those with them
# takes as a whole.
KNOWN = {
  r'\s*[\r\n]+': r'\s+',
  r'\s*[\r\n]': r'\s+',
  r'\s+(?!\S)': r'\s+',
  rf'[^\r\n\p{{L}}\p{{N}}]?{LETTERS}*{SMALL}+{ENDINGS}?': (
    rf'[^\r\n\p{{L}}\p{{N}}]?{LETTERS}+{SMALL}*{ENDINGS}?'
  ),
  rf'[^\r\n\p{{L}}\p{{N}}]?{LETTERS}*{SMALL}+': (
    rf'[^\r\n\p{{L}}\p{{N}}]?{LETTERS}+{SMALL}*'
  ),
}
ITEM = re.compile(
  r'\\[pP]\{\^?\w{1,40}\}|\\.|\[\^?(?:\\[pP]\{\^?\w{1,40}\}|\\.|[^\[\]\\&])+\]'
  r"|\(\?i:['\w|]+\)|[^\\\[\](){}|+*?^$]"
)
QUANTITY = re.compile(r'[+*?]|\{(\d*)(,?)(\d*)\}')


def are_known(model: dict[str, Any]) -> bool:
  """Returns whether a tokenizer.json is cheap for any text."""
  try:
    return (
      _is_cheap_model(model['model'])
      and _are_cheap_tokens(model)
      and _grow(model) <= GROWTH
    )
  except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
    return False


def is_linear(expression: str) -> bool:
  """Returns whether an expression never tries a second way to match.

  So it is where all that follows a `+` or `*` may be empty.
  """
  if not 0 < len(expression) <= EXPRESSION:
    return False
  found = _alternatives(expression)
  return found is not None and all(
    KNOWN.get(each) in found if each in KNOWN else _is_forward(each)
    for each in found
  )


def _is_cheap_model(own):
  options = {k: x for k, x in own.items() if k not in ('vocab', 'merges')}
  vocabulary = own['vocab']
  tokens = (x[0] if isinstance(x, list) else x for x in vocabulary)
  return (
    all(isinstance(x, int | None) or _is_short(x) for x in options.values())
    and (own.get('max_input_chars_per_word') or 0) <= WORD
    and all(len(token) <= TOKEN for token in tokens)
  )


def _are_cheap_tokens(model):
  added = model.get('added_tokens') or []
  sizes = [len(token['content']) for token in added]
  return sum(sizes) <= ADDED and all(0 < size <= TOKEN for size in sizes)


def _is_short(value):
  return isinstance(value, (float, str)) and len(str(value)) <= TEXT


def _grow(model) -> float:
  """Returns how many times as long a text may become.

  Raises:
    ValueError: a part isn't known to be cheap.
  """
  parts = [
    part
    for name in ('normalizer', 'pre_tokenizer')
    if model.get(name)
    for part in _parts(model[name])
  ]
  growth = 1.0
  for part in parts:
    growth *= _growth(part)
  if len(parts) > PARTS or growth > GROWTH:
    raise ValueError
  return growth


def _parts(part, depth=0) -> Iterator[dict[str, Any]]:
  if depth > DEPTH:
    raise ValueError
  if part['type'] != 'Sequence':
    yield part
    return
  for items in part.values():
    for item in items if isinstance(items, list) else ():
      yield from _parts(item, depth + 1)


def _growth(part):
  """Returns how many times as long a part makes a text."""
  for key, value in part.items():
    if key == 'pattern':
      _check_pattern(value)
    elif key != 'precompiled_charsmap':
      if not isinstance(value, bool | int | None) and not _is_short(value):
        raise ValueError
  match part['type']:
    case 'Replace':
      return max(len(part['content']), 1)
    case 'Prepend':
      return 2
    case 'Precompiled':
      return _charsmap(part['precompiled_charsmap'])
    case 'ByteLevel':
      return 2
    case 'BertNormalizer' | 'NFD' | 'NFKD' | 'NFKC' | 'Metaspace':
      return 3
    case _:
      return 1


def _check_pattern(pattern):
  """Raises ValueError unless a pattern is a text or an expression."""
  ((kind, text),) = pattern.items()
  if kind == 'String' and 0 < len(text) <= TEXT:
    return
  if kind != 'Regex' or not is_linear(text):
    raise ValueError


def _charsmap(text):
  """Returns the bytes of the longest text in a map of SentencePiece."""
  if len(text) > CHARSMAP:
    raise ValueError
  try:
    content = base64.b64decode(text, validate=True)
    (size,) = struct.unpack('<I', content[:4])
  except (binascii.Error, struct.error) as error:
    raise ValueError from error
  return max(map(len, content[4 + size :].split(b'\0')), default=1) or 1


def _alternatives(expression):
  """Returns the alternatives of an expression, or None."""
  found, begin, at = [], 0, 0
  while at < len(expression):
    if expression[at] == '|':
      found.append(expression[begin:at])
      begin = at = at + 1
    elif expression.startswith(r'(?!\S)', at):
      at += 6
    elif match := ITEM.match(expression, at) or QUANTITY.match(expression, at):
      at = match.end()
    else:
      return None
  return [*found, expression[begin:]]


def _is_forward(expression):
  """Whether nothing that follows a `+` or `*` of an alternative can fail."""
  at, unbounded = 0, False
  while at < len(expression):
    item = ITEM.match(expression, at)
    if not item:
      return False
    at = item.end()
    least, most = 1, 1
    if quantity := QUANTITY.match(expression, at):
      at = quantity.end()
      least, most = _bounds(quantity)
    if unbounded and least or least > COUNT:
      return False
    unbounded |= most > COUNT
  return bool(expression)


def _bounds(quantity):
  """Returns the least and the most of a repetition."""
  if quantity[0] in '+*?':
    return {'+': (1, 10**9), '*': (0, 10**9), '?': (0, 1)}[quantity[0]]
  least, comma, most = quantity.groups()
  if not comma:
    return int(least), int(least)
  return int(least or 0), int(most or 10**9)
