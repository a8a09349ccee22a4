"""A command in a process of its own, whose output is shown and kept."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing

from rnn_jax import checkout
from rnn_jax.training import signals

LONGEST_ERROR = 600


class Ended(typing.NamedTuple):
  """How a command ended.

  Attributes:
    error: one line on what went wrong, or ''.
    lines: of its stdout.
    seconds: that it took.
  """

  error: str
  lines: list[str]
  seconds: float


def run(
  command: list[str], log: typing.IO[str], stop: signals.StopRequest
) -> Ended:
  """Runs a command to its end; what it prints goes to stdout and `log`.

  Once `stop` has a name, the command gets a SIGTERM, and is waited for. A
  second Ctrl-C kills it.
  """
  began = time.monotonic()
  process = subprocess.Popen(
    command,
    env=checkout.environment() | {'PYTHONUNBUFFERED': '1'},
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    errors='replace',
    # Ctrl-C on a terminal reaches this process alone, which passes it on once.
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
    code = _wait(process, stop)
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # workers that it left behind
    process.wait()
    for thread in threads:
      thread.join()
  return Ended(_error(code, err), out, time.monotonic() - began)


def _copy(stream, lines, log, lock):
  with stream:
    for line in stream:
      lines.append(line.rstrip('\n'))
      with lock, contextlib.suppress(BrokenPipeError):
        log.write(line)
        log.flush()
        sys.stdout.write(line)
        sys.stdout.flush()


def _wait(process, stop):
  asked = False
  while True:
    try:
      return process.wait(0.1)
    except subprocess.TimeoutExpired:
      if stop.name and not asked:
        process.terminate()
        asked = True


def _error(code, lines):
  """One line on an exit code; '' for 0."""
  if code == 0:
    return ''
  lines = [line.strip() for line in lines if line.strip()]
  starts = [n for n, line in enumerate(lines) if line.startswith('error: ')]
  # A launcher's own message may go over lines; of others, the last one tells.
  told = ' '.join(lines[starts[-1] if starts else -1 :])
  how = f'killed by {signal.Signals(-code).name}' if code < 0 else ''
  if not told:
    how = how or f'exit code {code}'
  text = ': '.join(filter(None, (how, told.removeprefix('error: '))))
  return text[:LONGEST_ERROR]


def open_log(folder: pathlib.Path, name: str) -> typing.IO[str]:
  """The log of a run's folder, made where missing, to append to."""
  folder.mkdir(parents=True, exist_ok=True)
  return open(folder / name, 'a', encoding='utf-8')
