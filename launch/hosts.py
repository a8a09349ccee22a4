"""Flags of a job on several hosts, and how its processes start and end."""

import contextlib
import signal
import sys
import traceback

from absl import flags

HEADING = 'Flags of a job on several hosts'
COORDINATOR = flags.DEFINE_string(
  'coordinator', '', 'HOST:PORT of process 0 in a job on several hosts.'
)
PROCESSES = flags.DEFINE_integer(
  'processes', None, 'Number of processes in the job.'
)
PROCESS = flags.DEFINE_integer(
  'process', None, 'Index of this process, from 0.'
)
CLUSTER = flags.DEFINE_string(
  'cluster',
  '',
  "Detect these three: 'slurm', 'mpi', 'k8s' or 'env' (the variables "
  'JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID).',
)
CONNECT_TIMEOUT = flags.DEFINE_integer(
  'connect_timeout',
  300,
  'Seconds to wait for all processes to connect.',
  lower_bound=5,
)
HOST_TIMEOUT = flags.DEFINE_integer(
  'host_timeout',
  100,
  'Seconds without a heartbeat after which a host is lost and the job ends.',
  lower_bound=5,
)

# Words in a collective's error when another process is lost.
BROKEN = 'Gloo', 'NCCL', 'nccl', 'UNAVAILABLE', 'heartbeat', 'Barrier'


@contextlib.contextmanager
def joined(*, stops_together: bool):
  """Runs its body as one process of a job; by itself without flags.

  An error that ends one process ends all of them.

  Args:
    stops_together: whether `runs.signals` handles a SIGTERM on one host;
      otherwise SIGTERM ends the process as usual.

  Raises:
    InputError: inconsistent flags, or a job that can't be joined.
  """
  from rnn_jax import errors
  from rnn_jax.parallel import clusters

  address = clusters.find(
    COORDINATOR.value, PROCESSES.value, PROCESS.value, CLUSTER.value
  )
  if address is None:
    yield
    return
  from rnn_jax.parallel import hosts

  hosts.connect(address, CONNECT_TIMEOUT.value, HOST_TIMEOUT.value)
  if not stops_together:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
  try:
    yield
  except KeyboardInterrupt:
    _end('', 130)
  except Exception as error:
    line = errors.explain(error)
    if not line and any(word in str(error) for word in BROKEN):
      _lost(error)
    if line:
      _end(f'error: {line}', 1)
    traceback.print_exc()
    _end('error: this process failed as shown above; the others end too', 1)
  hosts.leave()


def _lost(error):
  """Ends the process, unless the runtime does so first and names the cause."""
  import time

  cause = str(error).splitlines()[0]
  print(
    f'lost contact with another process ({cause}): waiting up to '
    f'{HOST_TIMEOUT.value} s to learn which one',
    file=sys.stderr,
    flush=True,
  )
  time.sleep(HOST_TIMEOUT.value + 5)
  _end('error: another process was lost', 1)


def _end(message, code):
  from rnn_jax.parallel import hosts

  if message:
    print(message, file=sys.stderr, flush=True)
  hosts.abandon(code)
