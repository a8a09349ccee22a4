"""Waiting for what another thread or process does."""

import time


def until(condition, seconds=120):
  """Waits for a condition; fails if it doesn't come."""
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'it did not come'
    time.sleep(0.01)
