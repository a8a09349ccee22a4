"""Patterns of names: regular expressions that must match a whole name.

A config may be a stranger's, and Python's matcher tries `(.*)*!` for minutes on
one name. RE2 takes time linear in the name for any expression; what needs more,
look-arounds and references to groups, isn't part of its language.
"""

import functools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import re2

from rnn_jax import errors

LONGEST = 1000  # characters of a pattern
SHOWN = 60
REMEDY = (
  "correct it; look-arounds such as '(?!...)' and references such as '\\1' "
  "aren't available: name what shall match"
)


def check(key: str, pattern: str) -> None:
  """Checks a pattern that a key of the config gives.

  Raises:
    InputError: it is too long, or isn't a regular expression of RE2.
  """
  if len(pattern) > LONGEST:
    errors.refuse(
      key,
      f'{pattern[:SHOWN]}...',
      f'a pattern of {len(pattern):,} characters: give at most {LONGEST:,}, '
      'or several patterns',
    )
  try:
    _compiled(pattern)
  except re2.error as error:
    errors.refuse(
      key, pattern, f'not a regular expression ({_words(error)}): {REMEDY}'
    )


def matches(pattern: str, name: str) -> bool:
  """Returns whether a checked pattern matches the whole of a name."""
  return _compiled(pattern).fullmatch(name) is not None


def first_match(patterns: Sequence[str], name: str) -> int | None:
  """Returns the index of the first pattern that matches a name, or None."""
  found = (n for n, pattern in enumerate(patterns) if matches(pattern, name))
  return next(found, None)


def match_any(pattern: str, names: Iterable[str]) -> bool:
  """Returns whether a pattern matches the whole of one of the names."""
  return any(matches(pattern, name) for name in names)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
  options = re2.Options()
  options.log_errors = False  # else RE2 writes lines of its own
  return re2.compile(pattern, options)


def _words(error):
  text = error.args[0] if error.args else ''
  return text.decode(errors='replace') if isinstance(text, bytes) else text
