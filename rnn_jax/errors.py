"""Errors that a user can fix; a command prints them as one line."""

from typing import Any
from typing import NoReturn


class InputError(ValueError):
  """Bad input; the message names the argument, its value and the remedy."""


def refuse(argument: str, value: Any, remedy: str) -> NoReturn:
  """Raises an InputError about the value of an argument."""
  raise InputError(f'{argument}={value!r}: {remedy}')
