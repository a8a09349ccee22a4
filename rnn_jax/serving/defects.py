"""Defects in the log: where and what they are, without a client's words.

The message of an exception may quote what a client sent: a text, a schema, a
key. Frames and kinds don't, and they are what finds a defect. Of errors that
the system or the device makes, the message is shown too.
"""

import sqlite3
import traceback

import jax
from absl import logging

OWN_WORDS = (OSError, MemoryError, sqlite3.Error, jax.errors.JaxRuntimeError)
SHOWN = 1000  # characters of such a message


def log(what: str, error: BaseException) -> None:
  """Logs that something failed, which is a defect of this program.

  Args:
    what: it was, such as 'req-4f1c'.
    error: what was raised.
  """
  logging.error('%s failed: a defect:\n%s', what, describe(error))


def describe(error: BaseException) -> str:
  """Returns an exception, and those it follows from, without their messages."""
  parts = []
  seen: set[int] = set()
  current: BaseException | None = error
  while current is not None and id(current) not in seen:
    seen.add(id(current))
    kind = type(current)
    words = f': {current}'[:SHOWN] if isinstance(current, OWN_WORDS) else ''
    frames = ''.join(traceback.format_tb(current.__traceback__))
    parts.append(f'{frames}{kind.__module__}.{kind.__qualname__}{words}\n')
    hidden = current.__suppress_context__
    current = current.__cause__ or (None if hidden else current.__context__)
  return 'which followed from\n'.join(parts)
