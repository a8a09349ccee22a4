"""Runs a command in a new process and returns its result."""

import contextlib
import os
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

from rnn_jax.system import activity
from rnn_jax.system import shipped

ROOT = shipped.ROOT  # has launch and configs
LONGEST_ERROR = 600  # characters
POLL = 0.1  # seconds between checks of `stop` and the clock
# Linux ends the command with a SIGTERM when this process ends, even if it is
# killed: PR_SET_PDEATHSIG outlives exec.
FOLLOW = """
import ctypes, os, signal, sys
if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]): sys.exit(143)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Result(NamedTuple):
  """The result of a command.

  Attributes:
    code: the exit code, negative if a signal killed it; None on a timeout.
    out: the lines of stdout.
    err: the lines of stderr.
    seconds: how long it ran.
  """

  code: int | None
  out: list[str]
  err: list[str]
  seconds: float

  @property
  def signal_name(self) -> str:
    """The signal that ended the command, or ''."""
    code = self.code or 0
    number = -code if code < 0 else code - 128
    known = number in set(signal.Signals)
    return signal.Signals(number).name if known else ''

  @property
  def error(self) -> str:
    """What went wrong, in one line; '' after a success."""
    if self.code == 0:
      return ''
    if self.code is None:
      return f'timed out after {self.seconds:.0f} s'
    lines = [line.strip() for line in self.err if line.strip()]
    starts = [n for n, line in enumerate(lines) if line.startswith('error: ')]
    # A launcher's message may span lines; of others, take the last line.
    message = ' '.join(lines[starts[-1] if starts else -1 :])
    how = 'killed' if self.code < 0 else 'stopped'
    killed = f'{how} by {self.signal_name}' if self.signal_name else ''
    if not message:
      return killed or f'exit code {self.code}'
    parts = filter(None, (killed, message.removeprefix('error: ')))
    return ': '.join(parts)[:LONGEST_ERROR]


def environment() -> dict[str, str]:
  """Returns this process's variables, with ROOT on Python's path."""
  paths = [str(ROOT), os.environ.get('PYTHONPATH', '')]
  return os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, paths))}


def run(
  command: Sequence[str],
  *,
  variables: Mapping[str, str] | None = None,
  log: IO[str] | None = None,
  show: Callable[[str], None] | None = None,
  stop: Callable[[], bool] | None = None,
  timeout: float | None = None,
) -> Result:
  """Runs a command to its end, then kills processes that it left running.

  On Linux it gets a SIGTERM if this process ends first, however that happens.

  Args:
    command: the program and its arguments.
    variables: its environment; None: `environment()`.
    log: gets a copy of each line of output.
    show: called with each line of stdout, on another thread.
    stop: once it returns True, the command gets one SIGTERM and may finish.
    timeout: seconds after which the command is killed.
  """
  began = time.monotonic()
  process = subprocess.Popen(
    following(command),
    env=variables or environment(),
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    errors='replace',
    # Ctrl-C on a terminal reaches only this process, which forwards it once.
    start_new_session=True,
  )
  out: list[str] = []
  err: list[str] = []
  lock = threading.Lock()
  threads = [
    threading.Thread(target=_copy, args=(stream, lines, log, lock, seen))
    for stream, lines, seen in (
      (process.stdout, out, show),
      (process.stderr, err, None),
    )
  ]
  for thread in threads:
    thread.start()
  # A command whose lines are shown says itself what it does.
  shown = contextlib.nullcontext() if log is None else activity.waiting()
  try:
    with shown:
      code = _wait(process, stop, began + (timeout or float('inf')))
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # workers that still run
    process.wait()
    for thread in threads:
      thread.join()
  return Result(code, out, err, time.monotonic() - began)


def following(command: Sequence[str]) -> Sequence[str]:
  """Returns the command that ends, on Linux, when this process does."""
  if sys.platform != 'linux':
    return command
  follow = [sys.executable, '-I', '-S', '-c', FOLLOW]
  return [*follow, str(os.getpid()), *command]


def _copy(stream, lines, log, lock, show):
  with stream:
    for line in stream:
      lines.append(line.rstrip('\n'))
      if log is not None:
        with lock, contextlib.suppress(OSError):  # a full disk
          log.write(line)
          log.flush()
      if show is not None:
        show(lines[-1])


def _wait(process, stop, deadline):
  """Returns the exit code, or None after the deadline."""
  terminated = False
  while time.monotonic() < deadline:
    try:
      return process.wait(POLL)
    except subprocess.TimeoutExpired:
      if stop is not None and stop() and not terminated:
        process.terminate()
        terminated = True
  return None
