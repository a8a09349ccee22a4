"""Which systems have what runs need: signals, locks of files, limits."""

import sys

from rnn_jax import errors


def check(what: str) -> None:
  """Checks that this system isn't Windows.

  `rnn_jax.layers` and `rnn_jax.ops` need no more than jax does.

  Args:
    what: needs another one, for the message.

  Raises:
    InputError: it is Windows.
  """
  if sys.platform == 'win32':
    raise errors.InputError(
      f"{what} runs on Linux and macOS: Windows lacks POSIX's signals and "
      'locks: run it in WSL 2'
    )
