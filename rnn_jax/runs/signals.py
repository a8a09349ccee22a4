"""SIGTERM and Ctrl-C as a wish to stop, granted between two steps.

Of several processes any one may be asked, and all stop behind the same step:
JAX's runtime notes a SIGTERM, tells all processes, and lets them go on to one
step beyond the furthest of them. It looks for a signal once a second, and
asking it costs a step no communication.
"""

import os
import signal

from jax.experimental import multihost_utils

from rnn_jax.parallel import hosts


class StopRequest:
  """While entered, the first signal is noted; a second Ctrl-C interrupts.

  Attributes:
    name: the signal that asked, such as 'SIGTERM', or None.
  """

  SIGNALS = (signal.SIGTERM, signal.SIGINT)

  def __init__(self):
    self.name = None
    self._together = hosts.count() > 1
    self._previous = {}

  def __enter__(self):
    # The runtime's own handler has SIGTERM, and Python can't put it back.
    for number in self.SIGNALS[self._together :]:
      self._previous[number] = signal.signal(number, self._note)
    return self

  def __exit__(self, *error):
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    if self._together:
      signal.signal(signal.SIGTERM, signal.SIG_DFL)

  def wanted(self, step: int) -> bool:
    """Returns whether to stop before this step.

    Several processes must ask before each step, all before the same ones.
    """
    if not self._together:
      return self.name is not None
    if not multihost_utils.reached_preemption_sync_point(step):
      return False
    self.name = self.name or 'SIGTERM'
    return True

  def _note(self, number, frame):
    del frame
    if self.name and number == signal.SIGINT:
      raise KeyboardInterrupt
    self.name = signal.Signals(number).name
    if self._together:
      os.kill(os.getpid(), signal.SIGTERM)  # for the runtime to tell the others
