"""Runs a command in a process of its own and reports how it ended."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import IO
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]  # of the checkout
LONGEST_ERROR = 600  # characters
POLL = 0.1  # seconds between two looks at `stop` and the clock


class Ended(NamedTuple):
  """How a command ended.

  Attributes:
    code: its exit code, negative if a signal killed it; None on a timeout.
    out: the lines of its stdout.
    err: the lines of its stderr.
    seconds: how long it ran.
  """

  code: int | None
  out: list[str]
  err: list[str]
  seconds: float

  @property
  def signal_name(self) -> str:
    """The signal that killed the command, or ''."""
    return signal.Signals(-self.code).name if (self.code or 0) < 0 else ''

  @property
  def error(self) -> str:
    """One line on what went wrong; '' if nothing did."""
    if self.code == 0:
      return ''
    if self.code is None:
      return f'timed out after {self.seconds:.0f} s'
    lines = [line.strip() for line in self.err if line.strip()]
    starts = [n for n, line in enumerate(lines) if line.startswith('error: ')]
    # A launcher's message may span lines; of others the last line says most.
    message = ' '.join(lines[starts[-1] if starts else -1 :])
    killed = f'killed by {self.signal_name}' if self.signal_name else ''
    if not message:
      return killed or f'exit code {self.code}'
    parts = filter(None, (killed, message.removeprefix('error: ')))
    return ': '.join(parts)[:LONGEST_ERROR]


def environment() -> dict[str, str]:
  """Returns this process's variables, with the checkout on Python's path."""
  paths = [str(ROOT), os.environ.get('PYTHONPATH', '')]
  return os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, paths))}


def run(
  command: Sequence[str],
  *,
  variables: Mapping[str, str] | None = None,
  log: IO[str] | None = None,
  stop: Callable[[], bool] | None = None,
  timeout: float | None = None,
) -> Ended:
  """Runs a command to its end and leaves none of its processes behind.

  Args:
    command: the program and its arguments.
    variables: its environment; None: that of `environment`.
    log: copies each line of output to this file and to stdout.
    stop: once it returns True, the command gets one SIGTERM and may finish.
    timeout: kills the command after this many seconds.
  """
  began = time.monotonic()
  process = subprocess.Popen(
    command,
    env=variables or environment(),
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    errors='replace',
    # Ctrl-C on a terminal reaches only this process, which forwards it once.
    start_new_session=True,
  )
  out, err, lock = [], [], threading.Lock()
  threads = [
    threading.Thread(target=_copy, args=(stream, lines, log, lock))
    for stream, lines in ((process.stdout, out), (process.stderr, err))
  ]
  for thread in threads:
    thread.start()
  try:
    code = _wait(process, stop, began + (timeout or float('inf')))
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # workers that it left behind
    process.wait()
    for thread in threads:
      thread.join()
  return Ended(code, out, err, time.monotonic() - began)


def _copy(stream, lines, log, lock):
  with stream:
    for line in stream:
      lines.append(line.rstrip('\n'))
      if log is not None:
        with lock, contextlib.suppress(BrokenPipeError):
          for file in (log, sys.stdout):
            file.write(line)
            file.flush()


def _wait(process, stop, deadline):
  """Returns the exit code, or None once the deadline has passed."""
  terminated = False
  while time.monotonic() < deadline:
    try:
      return process.wait(POLL)
    except subprocess.TimeoutExpired:
      if stop is not None and stop() and not terminated:
        process.terminate()
        terminated = True
  return None
