"""Processes that are compared take turns: one runs, the others wait.

The speed of a shared machine changes from second to second. So each case makes
itself ready in a process of its own, and stops before each timed call until it
has the turn. A round gives everyone one turn; what counts is the ratio of two
times of the same round, its median over rounds and the interval of that.

A turn ends when the process is idle: threads that have nothing to do spin for
a while before they sleep, and would take that time from the next process.

A turn that would be over in less than SHORTEST seconds is several calls, after
one that isn't timed: the caches hold what the process before it left there.

On a GPU, processes that start and compile side by side wait once instead, each
before its first timed call: from then on it has the GPU alone, until it ends.
"""

import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any

SHORTEST = 0.05  # seconds of a turn
GLANCE = 0.02  # seconds between two looks at this process's own CPU time
IDLE = 0.05  # of a core, at most
PATIENCE = 2.0  # seconds, for what never is

_pipe: connection.Connection | None = None
_gate: connection.Connection | None = None


def join(descriptor: int) -> None:
  """Makes the first `timed` of this process take turns over that socket."""
  global _pipe  # noqa: PLW0603
  _pipe = connection.Connection(descriptor)


def wait_at(descriptor: int) -> None:
  """Makes the first `alone` of this process wait at that socket."""
  global _gate  # noqa: PLW0603
  _gate = connection.Connection(descriptor)


def alone() -> None:
  """Returns when no process beside this one computes, until this one ends."""
  global _gate  # noqa: PLW0603
  if _gate is not None:
    with _gate as gate:
      gate.send(None)
      gate.recv()
    _gate = None


def timed(run: Callable[[], Any], repeats: int) -> list[float]:
  """Seconds of calls of `run`: so many, or one for each turn."""
  global _pipe  # noqa: PLW0603
  if _pipe is None:
    return [_seconds(run, 1) for _ in range(repeats)]
  seconds = []
  with _pipe as pipe:
    for _ in _turns(pipe, seconds):
      seconds.append(_turn(run))
  _pipe = None
  return seconds


def _turn(run):
  first = _seconds(run, 1)
  if first >= SHORTEST:
    return first
  return _seconds(run, math.ceil(SHORTEST / max(first, 1e-6)))


def _turns(pipe, seconds) -> Iterator[None]:
  """Waits for each turn; says before how long the last one took."""
  while True:
    _wait_until_idle()
    pipe.send(seconds[-1] if seconds else None)
    if not pipe.recv():
      return
    yield


def _wait_until_idle():
  """Waits until no thread of this process runs."""
  end = time.perf_counter() + PATIENCE
  while time.perf_counter() < end:
    begin = time.process_time()
    time.sleep(GLANCE)
    if time.process_time() - begin < IDLE * GLANCE:
      return


def _seconds(run, calls):
  begin = time.perf_counter()
  for _ in range(calls):
    run()
  return (time.perf_counter() - begin) / calls
