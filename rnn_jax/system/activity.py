"""What a command is doing, printed on stderr when it has been quiet.

    with activity.doing('evaluating', 900, 'batches') as done:
      for batch in batches:
        ...
        done(1)

prints 'evaluating: 120 of 900 batches, started 12 s ago' every ten seconds. The
first line of a command comes within two seconds. Nobody has to guess whether it
works.
"""

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

FIRST = 1.5  # seconds to a command's first line, if it has printed nothing
QUIET = 10.0  # seconds without a word, at most


@dataclasses.dataclass(eq=False)
class _Activity:
  what: str
  total: int
  unit: str
  begun: float
  done: int = 0

  def line(self) -> str:
    since = f'started {time.monotonic() - self.begun:.0f} s ago'
    if not self.done and not self.total:
      return f'{self.what}: {since}'
    of = f' of {self.total:,}' if self.total else ''
    part = f'{self.done:,}{of} {self.unit}'
    return f'{self.what}: {part}, {since}'


def _to_stderr(line: str) -> None:
  print(line, file=sys.stderr, flush=True)


_print: list[Callable[[str], None]] = [_to_stderr]
_current: list[_Activity] = []  # the innermost one last
_lock = threading.Lock()
_spoke = [0.0]  # when something was printed last


@contextlib.contextmanager
def doing(
  what: str, total: int = 0, unit: str = ''
) -> Iterator[Callable[[int], None]]:
  """Names what its body does.

  Args:
    what: as in 'evaluating'.
    total: how many units there are; 0: unknown.
    unit: as in 'batches'.

  Yields:
    done(n), to call after n more units.
  """
  own = _Activity(what, total, unit, time.monotonic())

  def done(count: int) -> None:
    own.done += count

  with _lock:
    _current.append(own)
  try:
    yield done
  finally:
    with _lock:
      _current.remove(own)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
  """Inside it nothing is printed: the command waits for its user."""
  with doing(''):
    yield
  spoke()


def spoke() -> None:
  """Says that something was printed just now."""
  _spoke[0] = time.monotonic()


def print_with(function: Callable[[str], None] | None) -> None:
  """Prints lines with a function, such as a progress bar's; None: on stderr."""
  _print[0] = function or _to_stderr


@contextlib.contextmanager
def reported(command: str) -> Iterator[None]:
  """Inside it a thread prints what the command does, see the module."""
  ended = threading.Event()
  spoke()
  begun = _spoke[0]

  def report():
    while not ended.wait(min(FIRST, QUIET) / 10):
      limit = min(FIRST, QUIET) if _spoke[0] == begun else QUIET
      if time.monotonic() - _spoke[0] >= limit:
        with _lock:
          innermost = _current[-1]
        if innermost.what:
          with contextlib.suppress(OSError, ValueError):
            _print[0](innermost.line())
        spoke()

  with doing(command):
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
      yield
    finally:
      ended.set()
      thread.join()
