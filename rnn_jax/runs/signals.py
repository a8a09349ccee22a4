"""SIGTERM and Ctrl-C stop a run between two steps.

Any one of several processes may get the signal, and all stop after the same
step: JAX's runtime notes a SIGTERM, notifies all processes, and lets them run
to one step after the furthest of them. It checks for a signal once per second,
and asking it costs a step no communication.
"""

import os
import signal
import types
from collections.abc import Callable
from typing import Any
from typing import Self

from jax.experimental import multihost_utils

from rnn_jax.parallel import hosts


class StopRequest:
  """Inside it the first signal is noted; a second Ctrl-C interrupts.

  Attributes:
    name: the signal, such as 'SIGTERM', or None.
  """

  SIGNALS = (signal.SIGTERM, signal.SIGINT)

  def __init__(self) -> None:
    self.name: str | None = None
    self._together = hosts.count() > 1
    self._previous: dict[int, Callable[..., Any] | int | None] = {}

  def __enter__(self) -> Self:
    # The runtime handles SIGTERM itself, and Python couldn't restore that.
    for number in self.SIGNALS[self._together :]:
      self._previous[number] = signal.signal(number, self._note)
    return self

  def __exit__(self, *error: object) -> None:
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

  def _note(self, number: int, frame: types.FrameType | None) -> None:
    del frame
    if self.name and number == signal.SIGINT:
      raise KeyboardInterrupt
    self.name = signal.Signals(number).name
    if self._together:
      os.kill(os.getpid(), signal.SIGTERM)  # the runtime notifies the others
