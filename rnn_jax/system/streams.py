"""Standard output and error that never fail the work.

    with streams.guarded():
      print('step 5/40')   # dropped if nobody can read it

What a command reports about its work is dropped where it can't be written: the
reader of a pipe is gone, the disk is full, the descriptor is closed. A command
whose result is its output says so (`stdout_is_the_result`): there the first
write that fails raises. A reader that exists and doesn't read blocks a command,
as it blocks any program, until `hurry`.

A character that a stream's encoding lacks is written as in JSON, \\u00e9, so
that lines of JSON keep their values.
"""

import codecs
import contextlib
import errno
import io
import logging as python_logging
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any
from typing import TextIO

from absl import logging

from rnn_jax import errors

ATOMIC = 4096  # bytes that a pipe takes at once if it takes any (PIPE_BUF)
PATIENCE = 1.0  # seconds that a reader has after `hurry`
POLL = 0.1  # seconds
ESCAPE = 'rnn_jax.escape'  # the handler of characters that an encoding lacks
CLOSED = (
  'standard output is closed, and the result goes there: redirect it to a file '
  'or a pipe'
)

_deadline = [float('inf')]  # when readers that don't read no longer count


class ReaderGone(BrokenPipeError):
  """The reader of a command's result closed the pipe."""


class _Descriptor(io.FileIO):
  """A descriptor that drops what can't be written to it."""

  def __init__(self, number: int, was_closed: bool) -> None:
    super().__init__(number, 'w', closefd=False)
    self.was_closed = was_closed
    self.raises = False  # at the next failure, once

  def write(self, data: Any) -> int:
    try:
      while True:
        self._wait()
        written = super().write(memoryview(data)[:ATOMIC])
        if written is not None:  # None: it doesn't block, and is full
          return written
    except OSError as error:
      if self.raises:
        self.raises = False
        raise _explained(error) from None
      return len(data)

  def _wait(self):
    """Returns once a write won't block; raises BlockingIOError if hurried."""
    poll = select.poll()
    poll.register(self.fileno(), select.POLLOUT)
    while not poll.poll(1000 * POLL):
      if time.monotonic() > _deadline[0]:
        raise BlockingIOError


@contextlib.contextmanager
def guarded() -> Iterator[None]:
  """Inside it print, logs and progress bars never fail, see the module.

  It replaces sys.stdout and sys.stderr where they are the process's own, and
  opens those of its descriptors 0, 1 and 2 that are closed: the next file that
  is opened would get such a number, and what libraries print.
  """
  _deadline[0] = float('inf')
  closed = _fill()
  before = sys.stdin, sys.stdout, sys.stderr
  handler = logging.get_absl_handler().python_handler
  logs_to_stderr = handler.stream is sys.stderr
  raises = python_logging.raiseExceptions
  if sys.stdin is None:
    sys.stdin = open(os.devnull, encoding='utf-8')  # noqa: SIM115
  sys.stdout = _guard(1, before[1], 1 in closed)
  sys.stderr = _guard(2, before[2], 2 in closed)
  if logs_to_stderr:
    handler.setStream(sys.stderr)
  python_logging.raiseExceptions = False  # no traceback of a line of a log
  try:
    yield
  finally:
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(OSError, ValueError):
        stream.flush()
    sys.stdin, sys.stdout, sys.stderr = before
    if logs_to_stderr:
      handler.setStream(before[2])
    python_logging.raiseExceptions = raises


def replaced(number: int, stream: TextIO) -> TextIO:
  """Returns a guarded stream like another one, which writes to a descriptor.

  Args:
    number: the descriptor.
    stream: whose encoding, buffering and reaction to failures it takes.
  """
  raw = _raw(stream)
  new = _text(_Descriptor(number, bool(raw and raw.was_closed)), stream)
  if raw and (changed := _raw(new)):
    changed.raises = raw.raises
  return new


def stdout_is_the_result() -> None:
  """From now on a failure to write to standard output ends the command.

  Raises:
    InputError: standard output was closed when the process started.
  """
  if raw := _raw(sys.stdout):
    if raw.was_closed:
      raise errors.InputError(CLOSED)
    raw.raises = True


def hurry() -> None:
  """From now on a reader that doesn't read has PATIENCE seconds in all."""
  _deadline[0] = min(_deadline[0], time.monotonic() + PATIENCE)


def _guard(number, stream, was_closed):
  if stream is None:
    if not was_closed:  # something else has opened a file of this number
      number, was_closed = os.open(os.devnull, os.O_RDONLY), True
    return _text(_Descriptor(number, was_closed), None)
  if _raw(stream) is not None or not _writes_to(stream, number):
    return stream
  stream.flush()
  return _text(_Descriptor(number, was_closed), stream)


def _text(raw, like):
  interactive = getattr(like, 'line_buffering', True)
  unbuffered = getattr(like, 'write_through', False)  # python -u
  return io.TextIOWrapper(
    io.BufferedWriter(raw),
    encoding=getattr(like, 'encoding', None) or 'utf-8',
    errors=ESCAPE,
    line_buffering=interactive or unbuffered,
  )


def _raw(stream) -> _Descriptor | None:
  raw = getattr(getattr(stream, 'buffer', None), 'raw', None)
  return raw if isinstance(raw, _Descriptor) else None


def _writes_to(stream, number):
  try:
    return stream.fileno() == number
  except (AttributeError, OSError, ValueError):
    return False  # of a test, a notebook


def _fill():
  """Opens the standard descriptors that are closed. Returns their numbers."""
  closed = set()
  for number in (0, 1, 2):
    try:
      os.fstat(number)
    except OSError:
      # For reading: a write still fails.
      opened = os.open(os.devnull, os.O_RDONLY)
      if opened != number:
        os.dup2(opened, number)
        os.close(opened)
      os.set_inheritable(number, True)
      closed.add(number)
  return closed


def _explained(error):
  if error.errno == errno.EPIPE:
    return ReaderGone(*error.args)
  if error.errno == errno.EBADF:
    return errors.InputError(CLOSED)
  return OSError(error.errno, error.strerror, 'standard output')


def _escape(error):
  if not isinstance(error, UnicodeEncodeError):
    raise error
  lacking = error.object[error.start : error.end]
  code = lacking.encode('utf-16-be', 'surrogatepass').hex()
  units = (code[n : n + 4] for n in range(0, len(code), 4))
  return ''.join(f'\\u{unit}' for unit in units), error.end


codecs.register_error(ESCAPE, _escape)
