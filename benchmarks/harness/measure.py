"""Seconds and memory of a function of no arguments."""

import os
import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import turns
from rnn_jax.system import host

Run = Callable[[], Any]  # ends when its work is done
Values = dict[str, Any]  # of a row, or a case's parameters


def seconds(run: Run) -> float:
  """How long one call takes."""
  turns.alone()
  begin = time.perf_counter()
  run()
  return time.perf_counter() - begin


def repeat(run: Run, repeats: int, warmups: int = 1) -> Values:
  """`summarize` of calls, after some that don't count.

  In a case that is compared with others, a call waits for its turn.
  """
  turns.alone()
  for _ in range(warmups):
    run()
  return summarize(turns.timed(run, repeats))


def with_memory(run: Run, repeats: int, warmups: int = 1) -> Values:
  """The same, and the resident memory that the process grows to meanwhile."""
  memory = host.Memory()
  return repeat(run, repeats, warmups) | memory.values()


def summarize(seconds: Sequence[float]) -> Values:
  """Repeats, median, mean, standard deviation and minimum of seconds."""
  return {
    'repeats': len(seconds),
    'median': statistics.median(seconds),
    'mean': statistics.fmean(seconds),
    'deviation': statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
    'min': min(seconds),
  }


def quantile(values: Sequence[float], share: float) -> float:
  """The nearest of the values below which that share of them lies."""
  return sorted(values)[round(share * (len(values) - 1))]


def cores() -> int:
  """How many cores this process may use."""
  return len(os.sched_getaffinity(0))
