"""A loop that stays at most two results ahead of the device.

JAX returns from a call before the device has computed it, on a CPU up to 32
calls before. So many steps a stop would have to wait for, and a count of
progress would be of what is queued. One queued call keeps the device busy; the
second covers what the host does in between.
"""

import collections
from typing import Any

import jax

MAX_OWED = 2  # results that the device may still owe

PyTree = Any


class Ahead:
  """Counts the results of a loop that the device has computed."""

  def __init__(self) -> None:
    self._owed: collections.deque[PyTree] = collections.deque()

  def wait(self, result: PyTree) -> int:
    """Takes the newest result; waits until at most MAX_OWED are uncomputed.

    Args:
      result: arrays that no later call is donated.

    Returns:
      The number of results that were waited for.
    """
    self._owed.append(result)
    return self._wait_for(len(self._owed) - MAX_OWED)

  def finish(self) -> int:
    """Waits for the rest. Returns how many they were."""
    return self._wait_for(len(self._owed))

  def _wait_for(self, count):
    for _ in range(count):
      jax.block_until_ready(self._owed.popleft())
    return max(count, 0)
