"""SIGTERM and Ctrl-C as a wish to stop, granted between two steps."""

import signal


class StopRequest:
  """While entered, the first signal is noted; a second Ctrl-C interrupts.

  Attributes:
    name: the signal that asked, such as 'SIGTERM', or None.
  """

  SIGNALS = (signal.SIGTERM, signal.SIGINT)

  def __init__(self):
    self.name = None
    self._previous = {}

  def __enter__(self):
    for number in self.SIGNALS:
      self._previous[number] = signal.signal(number, self._note)
    return self

  def __exit__(self, *error):
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _note(self, number, frame):
    del frame
    if self.name and number == signal.SIGINT:
      raise KeyboardInterrupt
    self.name = signal.Signals(number).name
