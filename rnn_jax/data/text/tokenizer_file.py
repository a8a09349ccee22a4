"""What is in a tokenizer.json of package `tokenizers`, as far as we read it.

    {"model": {"vocab": {token: id}, "unk_token": ...},
     "added_tokens": [{"id", "content", "lstrip", "rstrip"}],
     "decoder": {"type"}, "pre_tokenizer": {"type", ...}, "normalizer": ...}

The package checks the rest when it makes a tokenizer of it.
"""

from typing import Any

PARTS = ('decoder', 'pre_tokenizer', 'normalizer')
FLAGS = ('lstrip', 'rstrip')


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
  """Whether a value is a whole number from 0, below `size`."""
  whole = isinstance(value, int) and not isinstance(value, bool)
  return whole and value >= 0 and (size is None or value < size)


def is_text(value: Any) -> bool:
  """Whether a value is a text that UTF-8 can encode."""
  if not isinstance(value, str):
    return False
  try:
    value.encode()
  except UnicodeEncodeError:
    return False
  return True


def _check(holds, name, what):
  if not holds:
    raise ValueError(f'{name} must be {what}')
