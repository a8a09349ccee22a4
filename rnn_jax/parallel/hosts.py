"""Several processes as one job, on JAX's own distributed runtime.

Every process runs the same program; all of their devices make one mesh. The
first process, of number 0, is also the coordinator: the service through which
they find each other, tell that they are alive and agree.

A process whose heartbeats stop ends all others: JAX's runtime does that by
abort(), on a thread of its own, behind a line that names the numbers of those
that are gone. `connect` sees to it that a readable line follows and that the
exit code is 1. A process that can't go on should `abandon` the others, so that
they needn't wait for heartbeats that it still sends.

With one process everything here returns at once.
"""

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import flags
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from rnn_jax import errors
from rnn_jax.parallel import clusters

DAY = 24 * 3600  # a wait that ends, if ever, because a process is gone
FAREWELL = 5  # seconds that a failed process waits for others that failed too
SHARED = 60  # seconds until a file must be seen by all hosts

_numbers = itertools.count()
_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_kept = []  # C functions that must outlive this call


def connect(address: clusters.Address, timeout: int, host_timeout: int) -> None:
  """Joins the job; must come before any computation.

  Where others can't be reached, the process ends here with exit code 1 and a
  line that says so: the runtime knows no other way.

  Args:
    address: of the job, and this process's place in it.
    timeout: seconds until all processes must have come.
    host_timeout: seconds of silence after which a process counts as gone.

  Raises:
    InputError: nothing answers at the coordinator's address, or this process
      can't be it.
  """
  begun = time.monotonic()
  _keep_stdout()
  if address.process and address.coordinator:
    _reach(address, begun + timeout)
  # The platform is no option of `initialize`; on CPUs gloo carries the words.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  left = max(int(timeout - (time.monotonic() - begun)), 5)
  told = 'this process'
  if address.processes:
    told = f'process {address.process} of {address.processes}'
  absent = (
    f'error: {told}: after {timeout} s not all of the processes are there '
    f'({address.told}): start the same command on every host, each with its '
    f'own number, and look at what the others print\n'
  )
  with _muted() as terminal:
    _at_abort(terminal, absent)
    try:
      jax.distributed.initialize(
        address.coordinator or None,
        address.processes,
        address.process,
        address.device_ids,
        cluster_detection_method=address.detection,
        initialization_timeout=left,
        heartbeat_timeout_seconds=host_timeout,
        shutdown_timeout_seconds=host_timeout,
      )
    except (RuntimeError, ValueError, OSError) as error:
      reason = str(error).splitlines()[0]
      raise errors.InputError(f'{told}: {address.told}: {reason}') from error
  _at_abort(
    2,
    f"error: {told}: JAX's runtime ended it, because another process is gone "
    f'(named above, if it is known) or out of reach for {host_timeout} s; the '
    'same command on all hosts goes on from the last checkpoint\n',
  )
  # Orbax's barriers are else programs on the devices, which the refusal of
  # implicit transfers forbids.
  flags.FLAGS['experimental_orbax_use_distributed_barrier'].value = True


def count() -> int:
  """Returns how many processes the job has."""
  # Without a job this must not wake the devices: errors come before that.
  return jax.process_count() if jax.distributed.is_initialized() else 1


def first() -> bool:
  """Returns whether this is the process that writes and prints."""
  return count() == 1 or jax.process_index() == 0


def barrier(name: str) -> None:
  """Returns when every process has come here, however long it takes."""
  if count() > 1:
    _wait(f'{name}.{next(_numbers)}', DAY)


def gather(text: str) -> list[str]:
  """Returns the text of every process, by its number."""
  if count() == 1:
    return [text]
  barrier('gather')
  own = np.frombuffer(text.encode(), np.uint8)
  sizes = _all(np.int32(len(own)))
  padded = np.zeros(max(sizes), np.uint8)
  padded[: len(own)] = own
  rows = _all(padded)
  return [
    row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)
  ]


def told(value: Any) -> Any:
  """Returns what the first process gave, JSON-ready, to all."""
  if count() == 1:
    return value
  return json.loads(gather(json.dumps(value) if first() else '')[0])


def by_first(function: Callable[[], Any]) -> Any:
  """Calls a function in the first process, while the others wait.

  Returns:
    Its result, None in the others.

  Raises:
    InputError: it raised one; then so does every process.
  """
  result, problem = None, ''
  if first():
    try:
      result = function()
    except errors.InputError as error:
      if count() == 1:
        raise
      problem = str(error)
  if problem := told(problem):
    raise errors.InputError(problem)
  return result


def first_ahead(function: Callable[[], Any]) -> Any:
  """Calls a function in every process, first in the first one.

  Returns:
    Its result. What it writes there, the others find.

  Raises:
    InputError: as `by_first`.
  """
  result = by_first(function)
  return result if first() else function()


def check_shared(path: str | os.PathLike) -> None:
  """Sees to it that all processes see a file that the first one has.

  Raises:
    InputError: some don't; in every process.
  """
  if count() == 1:
    return
  end = time.monotonic() + SHARED
  while not os.path.exists(path) and time.monotonic() < end:
    time.sleep(0.1)  # a network filesystem shows a new file late
  seen = gather(str(int(os.path.exists(path))))
  if '0' in seen:
    blind = ', '.join(str(n) for n, text in enumerate(seen) if text == '0')
    raise errors.InputError(
      f'{path}, written by process 0, is not seen by process {blind}: give a '
      'folder that all hosts share'
    )


def whole(tree):
  """Returns a tree with arrays that this process has all of.

  All processes must call this; with one, nothing is moved.
  """
  if count() == 1:
    return tree
  with jax.transfer_guard('allow'):
    return multihost_utils.process_allgather(tree, tiled=True)


def leave() -> None:
  """Ends this process's part of the job when all have come so far."""
  barrier('end')
  jax.distributed.shutdown()


def abandon(code: int) -> None:
  """Ends this process at once, with an exit code; the others follow.

  Those that fail at the same place, which is the rule, end beside each other,
  each behind its own message.
  """
  with contextlib.suppress(Exception):
    _wait('farewell', FAREWELL)
  _at_abort(2, '', code)
  sys.stdout.flush()
  sys.stderr.flush()
  # Not sys.exit: the runtime's client would wait for the others to leave.
  os._exit(code)


def _all(array):
  # The launchers refuse implicit transfers; this one is small.
  with jax.transfer_guard('allow'):
    return multihost_utils.process_allgather(array)


def _wait(name, seconds):
  wait = multihost.get_barrier_sync_fn()
  wait(key=f'rnn_jax.{name}', timeout_ms=1000 * seconds)


def _reach(address, end):
  """Waits until something answers at the coordinator's address."""
  host, _, port = address.coordinator.rpartition(':')
  host = host.strip('[]')
  while True:
    try:
      socket.create_connection((host, int(port)), timeout=5).close()
      return
    except OSError as error:
      reason = error.strerror or str(error)
    if time.monotonic() > end:
      raise errors.InputError(
        f'process {address.process} of {address.processes}: the coordinator '
        f'{address.coordinator} cannot be reached ({reason}): start process 0 '
        'there, and see that no firewall is between'
      )
    time.sleep(0.5)


def _keep_stdout():
  """Leaves stdout to Python. Gloo writes to it for each group of processes
  that sums, whenever it comes to it: that goes to stderr."""
  sys.stdout.flush()
  own = os.dup(1)
  os.dup2(2, 1)
  encoding, handling = sys.stdout.encoding, sys.stdout.errors
  sys.stdout = open(own, 'w', encoding=encoding, errors=handling)  # noqa: SIM115


@contextlib.contextmanager
def _muted():
  """Holds back stderr, which the runtime fills; shows it when all is well.

  Yields:
    A file descriptor that still shows what is written.
  """
  sys.stderr.flush()
  with tempfile.TemporaryFile() as held:
    terminal = os.dup(2)
    os.dup2(held.fileno(), 2)
    try:
      yield terminal
    except BaseException:
      os.dup2(terminal, 2)
      raise
    os.dup2(terminal, 2)
    held.seek(0)
    os.write(2, held.read())


def _at_abort(terminal, message, code=1):
  """Lets abort() end in a message and an exit code.

  Python's own signal handlers would wait for the main thread.
  """

  def end(number):
    del number
    os.write(terminal, message.encode())
    os._exit(code)

  _kept.append(_handler(end))
  libc = ctypes.CDLL(None)
  libc.signal.restype = ctypes.c_void_p
  libc.signal(signal.SIGABRT, _kept[-1])
