"""What a user can mend: the errors that a command prints as one line."""


class InputError(ValueError):
  """Bad input. The message names the argument, its value and the remedy."""
