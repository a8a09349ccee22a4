"""A function of each of some parts, by several processes, in order."""

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
from rnn_jax.system import processor

P = TypeVar('P')
R = TypeVar('R')

DESCRIPTORS = 8  # that a worker process takes, and some to spare
AHEAD = 2  # parts for each process that wait, or whose results do


class Pool:
  """Worker processes, which start with the first parts; a context.

  Args:
    count: of processes.
    prepare: what each does first; it can be pickled. None: nothing.
  """

  def __init__(
    self, count: int, prepare: Callable[[], None] | None = None
  ) -> None:
    self._count = count
    self._executor = concurrent.futures.ProcessPoolExecutor(
      count,
      multiprocessing.get_context('spawn'),
      initializer=_begin,
      initargs=(prepare,),
    )

  def __enter__(self) -> 'Pool':
    return self

  def __exit__(self, *error: Any) -> None:
    self.close()

  def close(self) -> None:
    """Ends the processes, once they are done with what they have begun."""
    self._executor.shutdown(wait=True, cancel_futures=True)

  def ordered(
    self, function: Callable[[P], R], parts: Iterable[P]
  ) -> Iterator[R]:
    """Yields function(part) of each part, in the order of the parts.

    Worker processes import the function's module, so it may be of no
    `__main__`. An error in one is raised here.

    Args:
      function: of a module.
      parts: what each call takes; made when it is needed.
    """
    waiting: collections.deque[concurrent.futures.Future[R]]
    waiting = collections.deque()
    for part in parts:
      waiting.append(self._executor.submit(function, part))
      if len(waiting) >= AHEAD * self._count:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()


def by_all_cpus(
  function: Callable[[P], R], parts: Iterable[P], worth_it: bool
) -> Iterator[R]:
  """Yields as `Pool.ordered`, of a worker for each CPU of this process.

  This process does it all where the limit of open files allows no workers.

  Args:
    function: of a module.
    parts: what each call takes.
    worth_it: whether it takes longer than starting processes does.
  """
  count = processor.cores()
  if count < 2 or not worth_it or host.free_descriptors() < count * DESCRIPTORS:
    yield from map(function, parts)
    return
  with Pool(count) as pool:
    yield from pool.ordered(function, parts)


def _begin(prepare):
  """Leaves Ctrl-C to the parent; this worker doesn't outlive its parent."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # The processes are the parallelism; threads in each would only compete.
  os.environ['TOKENIZERS_PARALLELISM'] = 'false'
  threading.Thread(target=_end_with_parent, daemon=True).start()
  if prepare is not None:
    prepare()


def _end_with_parent():
  parent = multiprocessing.parent_process()
  assert parent is not None
  parent.join()
  os._exit(1)
