"""A stranger's program, run in a process of its own that has limits.

A tokenizer.json and a chat template are programs that come with a model. A
library can't interrupt them, and where memory ends their process does. So they
run in apart_worker.py, which may take so much memory and processor time; no
clock decides, on a busy machine it only takes longer.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any

from rnn_jax.data.text import apart_worker

WORKER = pathlib.Path(apart_worker.__file__)
# Seconds of processor time to start, and to read the program.
START = {'tokenizer': 20, 'template': 5}
SECONDS, PER_CHARACTER = 5, 2e-5  # the same for a request
SHOWN = 300  # characters of a program's own message


class FailedError(Exception):
  """A program fails; the message is its own, in one line.

  Attributes:
    exceeds: whether it needs more than it may.
    line: of the program, 0: not known.
  """

  def __init__(self, words: str, exceeds: bool = True, line: int = 0) -> None:
    super().__init__(' '.join(words.split())[:SHOWN])
    self.exceeds = exceeds
    self.line = line


class Process:
  """A program's process; it pickles as the program, and starts as needed.

  Args:
    kind: 'tokenizer' or 'template'.
    text: of the program.

  Attributes:
    about: what the worker says about the program.

  Raises:
    FailedError: it isn't one.
  """

  def __init__(self, kind: str, text: str) -> None:
    self._program = {'kind': kind, 'text': text}
    self._process: subprocess.Popen[bytes] | None = None
    self._owner = 0  # the process that started it: a fork starts its own
    self._lock = threading.Lock()
    self.about = self._started()

  def __getstate__(self) -> dict[str, Any]:
    gone = {'_process': None, '_owner': 0, '_lock': None}
    return self.__dict__ | gone

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__ |= state | {'_lock': threading.Lock()}

  def __del__(self) -> None:
    if getattr(self, '_owner', 0) == os.getpid():
      self._end()

  def ask(self, characters: int, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request.

    Args:
      characters: that it has, for which it gets more time.
      request: of JSON's types.

    Raises:
      FailedError: the program does, or takes more than it may.
    """
    with self._lock:
      if self._process is None or self._owner != os.getpid():
        self._started()
      return self._asked(request, SECONDS + int(PER_CHARACTER * characters))

  def _started(self):
    """Starts the process. Returns what it says about the program."""
    self._owner = os.getpid()
    self._process = subprocess.Popen(
      [sys.executable, '-I', str(WORKER)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      start_new_session=True,  # Ctrl-C ends the owner, which ends this
    )
    return self._asked(self._program, START[self._program['kind']])

  def _asked(self, request, seconds):
    process: Any = self._process
    content = json.dumps(request | {'seconds': seconds}).encode()
    try:
      apart_worker.write(process.stdin, content)
      answer = json.loads(apart_worker.read(process.stdout))
    except (OSError, ValueError):  # it has ended
      code = self._end()
      memory = apart_worker.MEMORY[self._program['kind']] / 2**30
      raise FailedError(
        f'it took more than {seconds} s of processor time'
        if code == -signal.SIGXCPU
        else f'its process ended, which may take {memory:.1f} GiB'
      ) from None
    except BaseException:
      self._end()  # what it answers is no answer to the next request
      raise
    if 'error' in answer:
      raise FailedError(answer['error'], answer['exceeds'], answer['line'])
    return answer

  def _end(self):
    """Ends the process; returns its code, or that of its own end."""
    process, self._process = self._process, None
    if process is None:
      return 0
    process.kill()  # nothing, if it has ended
    process.stdout.close()
    with contextlib.suppress(OSError):  # of a request that nobody reads
      process.stdin.close()
    return process.wait()
