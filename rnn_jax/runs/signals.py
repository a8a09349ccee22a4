"""SIGTERM, SIGINT (Ctrl-C) and SIGHUP stop a run, saved; a later one ends it.

Signals come in pairs: `timeout` sends two, a terminal that closes SIGHUP and
SIGTERM. Those within REPEAT seconds are one request.

The main thread may be in C code, where no handler is called: a thread sees the
signals too (signal_thread.py). The main thread has GRACE seconds to stop
between two steps; then the other thread saves the run and ends the process.

Any one of several processes may get the signal, and all stop after the same
step: JAX's runtime notes a SIGTERM, notifies all processes, and lets them run
to one step after the furthest of them. It checks for a signal once per second,
and asking it costs a step no communication. There only the loop stops a run.
"""

import contextlib
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any
from typing import Self

from jax.experimental import multihost_utils

from rnn_jax import errors
from rnn_jax.parallel import hosts
from rnn_jax.system import signal_thread
from rnn_jax.system import streams

POLL = 0.1  # seconds between attempts to finish


class StopRequest:
  """Inside it the first signal is noted; a later one ends the process.

  Attributes:
    name: the signal, such as 'SIGTERM', or None.
    finish: called on another thread when the main thread hasn't stopped after
      GRACE seconds, and again until it returns True: everything is saved, and
      the process ends. An error ends it too, with its reason. None: the main
      thread may take as long as it likes.
    lost: says what is lost if the process ends at once.
  """

  SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

  def __init__(self) -> None:
    self.name: str | None = None
    self.finish: Callable[[], bool] | None = None
    self.lost: Callable[[], str] | None = None
    self._together = False  # with other processes
    self._previous: dict[int, Callable[..., Any] | int | None] = {}
    self._watching = contextlib.ExitStack()

  def __enter__(self) -> Self:
    self._together = hosts.count() > 1
    # The runtime handles SIGTERM itself, and Python couldn't restore that.
    for number in self.SIGNALS[self._together :]:
      if _is_ignored_hangup(number):
        continue
      self._previous[number] = signal.signal(number, self._handle)
    self._watching.enter_context(signal_thread.watched(self._watch))
    return self

  def __exit__(self, *error: object) -> None:
    self._watching.close()
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    if self._together:
      signal.signal(signal.SIGTERM, signal.SIG_DFL)

  def wanted(self, step: int) -> bool:
    """Returns whether to stop before this step.

    All of several processes must ask before each step.
    """
    if not self._together:
      return self.name is not None
    if not multihost_utils.reached_preemption_sync_point(step):
      return False
    self.name = self.name or 'SIGTERM'
    return True

  def _handle(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    self.name = self.name or signal.Signals(number).name
    if self._together:
      os.kill(os.getpid(), signal.SIGTERM)  # the runtime notifies the others

  def _watch(self, pipe: int) -> None:
    """Reads signals; ends the process after a second one, or by `finish`."""
    came = float('inf')  # when the first signal came
    while True:
      finish = None if self._together else self.finish
      late = time.monotonic() > came + signal_thread.GRACE
      if late and finish is not None and self._ends(finish):
        signal_thread.end_now(signal_thread.exit_code(self.name))
      polls = finish is not None and came < float('inf')
      for number in signal_thread.read(pipe, POLL if polls else None):
        if number == signal_thread.DONE[0]:
          return
        if number not in self.SIGNALS:
          continue
        if came == float('inf'):
          came = time.monotonic()
          self.name = self.name or signal.Signals(number).name
          streams.hurry()  # a reader that doesn't read must not hold it
        elif time.monotonic() > came + signal_thread.REPEAT:
          self._end_unsaved(number)

  def _ends(self, finish):
    """Returns finish(); if it fails, the process ends with the reason."""
    try:
      return finish()
    except BaseException as error:
      try:
        _report(error)
      finally:
        signal_thread.end_now(1)

  def _end_unsaved(self, number):
    """Ends the process at once, and says what is lost."""
    try:
      lost = self.lost() if self.lost is not None else ''
      name = signal.Signals(number).name
      line = f'{name} after {self.name}: ended at once'
      _say(f'{line}: {lost}' if lost else line)
    finally:
      signal_thread.end_now(128 + number)


def _report(error):
  if line := errors.explain(error):
    _say(f'error: {line}')
  else:
    _say(''.join(traceback.format_exception(error)))


def _say(text):
  print(text, file=sys.stderr, flush=True)


def _is_ignored_hangup(number):
  """Whether nohup started the process, which is to outlive its terminal."""
  ignored = signal.getsignal(number) == signal.SIG_IGN
  return number == signal.SIGHUP and ignored
