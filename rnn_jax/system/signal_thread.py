"""A thread that sees signals while the main thread is in C code.

Python calls a signal's handler on the main thread, and only once that leaves C
code: not during a compilation, nor while it waits for data.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import NoReturn

REPEAT = 2.0  # seconds in which another signal means the same request
GRACE = 4.0  # seconds in which the main thread may end by itself
DONE = b'\0'  # tells the thread to end


def exit_code(name: str | None) -> int:
  """Returns 128 + the number of a signal, as shells count; None: 0."""
  return 128 + signal.Signals[name] if name else 0


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
  """Inside it Ctrl-C ends the process even if the main thread is in C code.

  The main thread gets a KeyboardInterrupt and has GRACE seconds to clean up. A
  second Ctrl-C ends the process at once.
  """

  def watch(pipe):
    deadline = None
    while True:
      numbers = read(pipe, deadline and max(deadline - time.monotonic(), 0))
      if DONE[0] in numbers:
        return
      if deadline and (signal.SIGINT in numbers or not numbers):
        end_now(exit_code('SIGINT'))
      if signal.SIGINT in numbers:
        deadline = time.monotonic() + GRACE

  with watched(watch):
    yield


def end_within(seconds: float, code: int) -> None:
  """Ends the process with an exit code, unless it ends earlier by itself.

  Python waits for threads at its end, and one may still be compiling.
  """
  timer = threading.Timer(seconds, end_now, [code])
  timer.daemon = True
  timer.start()


def end_now(code: int) -> NoReturn:
  """Ends the process without any cleaning up; what is printed may be lost."""
  os._exit(code)


@contextlib.contextmanager
def watched(watch: Callable[[int], None]) -> Iterator[None]:
  """Runs watch(pipe) on a thread, which reads each signal from the pipe.

  It gets those that have a handler of Python's, and ends after DONE.
  """
  if threading.current_thread() is not threading.main_thread():
    yield  # only the main thread can ask for signals
    return
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  thread = threading.Thread(target=watch, args=(reader,), daemon=True)
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(before)
    os.write(writer, DONE)
    thread.join()
    os.close(reader)
    os.close(writer)


def read(pipe: int, timeout: float | None) -> bytes:
  """Returns the numbers of the signals that came; b'' after the timeout."""
  ready, _, _ = select.select([pipe], [], [], timeout)
  return os.read(pipe, 64) if ready else b''
