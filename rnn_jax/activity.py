"""What a command is doing, said on stderr when it has been quiet for long.

    with activity.doing('evaluating', 900, 'batches') as done:
      for batch in batches:
        ...
        done(1)

prints 'evaluating: 120 of 900 batches, 10 s' after 10 s, and so on; on a
terminal the first line of each activity comes after 3 s. Nobody has to guess
whether a command still works.
"""

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

QUIET = 10.0  # seconds without a word, at most
SOON = 3.0  # the same on a terminal, before the first line of an activity


@dataclasses.dataclass(eq=False)
class _Activity:
  what: str
  total: int
  unit: str
  begun: float
  done: int = 0
  shown: bool = False

  def line(self) -> str:
    seconds = f'{time.monotonic() - self.begun:.0f} s'
    if not self.done and not self.total:
      return f'{self.what}: {seconds}'
    of = f' of {self.total:,}' if self.total else ''
    part = f'{self.done:,}{of} {self.unit}'
    return f'{self.what}: {part}, {seconds}'


def _to_stderr(line: str) -> None:
  print(line, file=sys.stderr, flush=True)


_print = [_to_stderr]
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


def spoke() -> None:
  """Says that something was printed just now."""
  _spoke[0] = time.monotonic()


def print_with(function: Callable[[str], None] | None) -> None:
  """Prints lines with a function, such as a progress bar's; None: on stderr."""
  _print[0] = function or _to_stderr


@contextlib.contextmanager
def reported(command: str) -> Iterator[None]:
  """Inside it a thread prints what goes on, every QUIET seconds of silence."""
  ended = threading.Event()

  def report():
    while not ended.wait(min(QUIET, SOON) / 20):
      with _lock:
        own = _current[-1]
      soon = sys.stderr.isatty() and not own.shown
      if time.monotonic() - _spoke[0] >= (SOON if soon else QUIET):
        own.shown = True
        with contextlib.suppress(OSError, ValueError):
          _print[0](own.line())
        spoke()

  spoke()
  with doing(command):
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
      yield
    finally:
      ended.set()
      thread.join()
