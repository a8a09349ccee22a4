"""What a user can mend: the errors that a command prints as one line."""

from typing import Any
from typing import NoReturn


class InputError(ValueError):
  """Bad input. The message names the argument, its value and the remedy."""


def refuse(argument: str, value: Any, remedy: str) -> NoReturn:
  """Raises the InputError of an argument's value."""
  raise InputError(f'{argument}={value!r}: {remedy}')
