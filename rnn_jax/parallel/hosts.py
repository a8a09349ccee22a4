"""Several processes as one job, on JAX's own distributed runtime.

Every process runs the same program; all of their devices make one mesh. The
first process, number 0, is also the coordinator: the service through which they
connect, send heartbeats and synchronize.

When a process's heartbeats stop, JAX's runtime ends all others by abort(), on a
thread of its own, after a line that names the lost processes. `connect` makes a
readable line follow, and the exit code 1. A process that can't continue should
`abandon` the others, so that they don't wait while it still sends heartbeats.

With one process every function here returns at once.
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
from typing import TypeVar
from typing import cast

import jax
import numpy as np
from absl import flags
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from rnn_jax import errors
from rnn_jax.parallel import clusters
from rnn_jax.system import streams

DAY = 24 * 3600  # if a wait ends early, a process is lost
FAREWELL = 5  # seconds that a failed process waits for others that failed too
SHARED = 60  # seconds until all hosts must see a file

PyTree = Any
T = TypeVar('T')

_numbers = itertools.count()
_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_kept: list[Any] = []  # C functions that must outlive this call


def connect(address: clusters.Address, timeout: int, host_timeout: int) -> None:
  """Joins the job, before any computation.

  If others can't be reached, the runtime can only abort: the process ends here
  with exit code 1 and a line that says why.

  Args:
    address: of the job, and this process's number.
    timeout: seconds until all processes must have joined.
    host_timeout: seconds without a heartbeat until a process counts as lost.

  Raises:
    InputError: nothing answers at the coordinator's address, or this process
      can't serve there.
  """
  begun = time.monotonic()
  _keep_stdout()
  if address.process and address.coordinator:
    _reach(address, begun + timeout)
  elif address.coordinator and address.process == 0:
    _check_port(address)
  # `initialize` has no option for this; on CPUs gloo communicates.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  remaining = max(int(timeout - (time.monotonic() - begun)), 5)
  own = 'this process'
  if address.processes:
    own = f'process {address.process} of {address.processes}'
  absent = (
    f'error: {own}: after {timeout} s some processes have not joined '
    f'({address.label}): start the same command on every host, each with its '
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
        initialization_timeout=remaining,
        heartbeat_timeout_seconds=host_timeout,
        shutdown_timeout_seconds=host_timeout,
      )
    except (RuntimeError, ValueError, OSError) as error:
      reason = str(error).splitlines()[0]
      raise errors.InputError(f'{own}: {address.label}: {reason}') from error
  _at_abort(
    2,
    f"error: {own}: JAX's runtime ended it, because another process was lost "
    f'(named above, if it is known) or out of reach for {host_timeout} s; the '
    'same command on all hosts resumes from the last checkpoint\n',
  )
  # Otherwise Orbax's barriers run on the devices, with implicit transfers,
  # which the launchers forbid.
  flags.FLAGS['experimental_orbax_use_distributed_barrier'].value = True


def count() -> int:
  """Returns how many processes the job has."""
  # Without a job this must not initialize the devices: errors come before that.
  return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
  """Returns whether this is the process that writes and prints."""
  return count() == 1 or jax.process_index() == 0


def barrier(name: str) -> None:
  """Returns when every process has reached this, however long it takes."""
  if count() > 1:
    _wait(f'{name}.{next(_numbers)}', DAY)


def gather(text: str) -> list[str]:
  """Returns the texts of all processes, by their number."""
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


def broadcast(value: Any) -> Any:
  """Returns the first process's value, which JSON can hold, in all of them."""
  if count() == 1:
    return value
  return json.loads(gather(json.dumps(value) if is_first() else '')[0])


def run_on_first(function: Callable[[], T]) -> T | None:
  """Calls a function in the first process, while the others wait.

  Returns:
    Its result; None in the others.

  Raises:
    InputError: it raised one; then every process does.
  """
  result, problem = None, ''
  if is_first():
    try:
      result = function()
    except errors.InputError as error:
      if count() == 1:
        raise
      problem = str(error)
  if problem := broadcast(problem):
    raise errors.InputError(problem)
  return result


def run_on_first_then_others(function: Callable[[], T]) -> T:
  """Calls a function in the first process, then in all others.

  So the others can read what the first one writes.

  Returns:
    Its result.

  Raises:
    InputError: as `run_on_first`.
  """
  result = run_on_first(function)
  return cast(T, result) if is_first() else function()


def check_shared(path: str | os.PathLike[str]) -> None:
  """Checks that all processes see a file that the first one has written.

  Raises:
    InputError: some don't; every process raises it.
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
      f'process {blind} does not see {path}, which process 0 has written: '
      'give a folder that all hosts share'
    )


def gather_arrays(tree: PyTree) -> PyTree:
  """Returns the arrays of a tree whole, in each process.

  All processes must call this. With one process it returns the tree itself.
  """
  if count() == 1:
    return tree
  with jax.transfer_guard('allow'):
    return multihost_utils.process_allgather(tree, tiled=True)


def leave() -> None:
  """Leaves the job when all processes have reached this."""
  barrier('end')
  jax.distributed.shutdown()


def abandon(code: int) -> None:
  """Ends this process at once, with an exit code; the others follow.

  Usually all processes fail at the same place: then each first prints its own
  message.
  """
  with contextlib.suppress(Exception):
    _wait('farewell', FAREWELL)
  _at_abort(2, '', code)
  sys.stdout.flush()
  sys.stderr.flush()
  # Not sys.exit: the runtime's client would wait for the others to leave.
  os._exit(code)


def _all(array):
  # The launchers forbid implicit transfers; this one is small.
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
        'there, and check that no firewall blocks it'
      )
    time.sleep(0.5)


def _check_port(address):
  """Checks that this process can serve: jax crashes if the port is taken."""
  _, _, port = address.coordinator.rpartition(':')
  with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      probe.bind(('', int(port)))
    except (OSError, OverflowError) as error:
      raise errors.InputError(
        f'--coordinator={address.coordinator}: process 0 cannot serve there '
        f'({getattr(error, "strerror", None) or error}): give a free port'
      ) from error


def _keep_stdout():
  """Keeps stdout for Python: what Gloo prints there goes to stderr."""
  sys.stdout.flush()
  own = os.dup(1)
  os.dup2(2, 1)
  sys.stdout = streams.replaced(own, sys.stdout)


@contextlib.contextmanager
def _muted():
  """Holds back the runtime's stderr; shows it if no error is raised.

  Yields:
    A file descriptor of the terminal.
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
  """Makes abort() end with a message and an exit code.

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
