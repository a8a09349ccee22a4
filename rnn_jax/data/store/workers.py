"""A function of each part of a corpus, by all of this process's CPUs."""

import collections
import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import TypeVar

from rnn_jax.system import host

P = TypeVar('P')
R = TypeVar('R')

DESCRIPTORS = 8  # that a worker process takes, and some to spare
AHEAD = 2  # parts for each process that wait, or whose results do


class Pool:
  """Worker processes, which start with the first parts that are worth it."""

  def __init__(self) -> None:
    self._executor: concurrent.futures.ProcessPoolExecutor | None = None

  def __enter__(self) -> 'Pool':
    return self

  def __exit__(self, kind: Any, *error: Any) -> None:
    if self._executor is not None:
      self._executor.shutdown(wait=kind is None, cancel_futures=True)

  def ordered(
    self, function: Callable[[P], R], parts: Iterable[P], worth_it: bool
  ) -> Iterator[R]:
    """Yields function(part) of each part, in the order of the parts.

    Worker processes import the function's module, so it may be of no
    `__main__`. An error in one is raised here.

    Args:
      function: of a module.
      parts: what each call takes; made when it is needed.
      worth_it: whether it takes longer than starting processes does. Where the
        limit of open files allows none, this process does it all.
    """
    count = len(os.sched_getaffinity(0))
    if count < 2 or not worth_it:
      yield from map(function, parts)
      return
    if self._executor is None:
      if host.free_descriptors() < count * DESCRIPTORS:
        yield from map(function, parts)
        return
      self._executor = concurrent.futures.ProcessPoolExecutor(
        count, multiprocessing.get_context('spawn'), initializer=follow_parent
      )
    waiting: collections.deque[concurrent.futures.Future[Any]]
    waiting = collections.deque()
    for part in parts:
      waiting.append(self._executor.submit(function, part))
      if len(waiting) >= AHEAD * count:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()


def follow_parent() -> None:
  """Leaves Ctrl-C to the parent; this worker doesn't outlive its parent."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # The processes are the parallelism; threads in each would only compete.
  os.environ['TOKENIZERS_PARALLELISM'] = 'false'
  threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
  parent = multiprocessing.parent_process()
  assert parent is not None
  parent.join()
  os._exit(1)
