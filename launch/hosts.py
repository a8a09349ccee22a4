"""The flags of a job on several hosts, and how its processes begin and end."""

import contextlib
import signal
import sys
import traceback

from absl import flags

COORDINATOR = flags.DEFINE_string(
  'coordinator', '', 'HOST:PORT of process 0, of a job on several hosts.'
)
PROCESSES = flags.DEFINE_integer(
  'processes', None, 'How many processes the job has.'
)
PROCESS = flags.DEFINE_integer(
  'process', None, 'Number of this process, from 0.'
)
CLUSTER = flags.DEFINE_string(
  'cluster',
  '',
  "Who tells all that instead: 'slurm', 'mpi', 'k8s' or 'env' (variables "
  'JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID).',
)
CONNECT_TIMEOUT = flags.DEFINE_integer(
  'connect_timeout',
  300,
  'Seconds until all processes must have come.',
  lower_bound=5,
)
HOST_TIMEOUT = flags.DEFINE_integer(
  'host_timeout',
  100,
  'Seconds of silence after which a host counts as gone and all others end.',
  lower_bound=5,
)

# What the words of a collective say when it is another process that is gone.
BROKEN = 'Gloo', 'NCCL', 'nccl', 'UNAVAILABLE', 'heartbeat', 'Barrier'


@contextlib.contextmanager
def joined(*, stops_together: bool):
  """Runs what is within as one process of the job; alone without flags.

  What ends one process by an error ends all of them.

  Args:
    stops_together: whether a SIGTERM of one host is kept for
      `training.signals`; else it ends the process as usual.

  Raises:
    InputError: flags that make no sense; a job that can't be joined.
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
  except errors.InputError as error:
    _end(f'error: {error}', 1)
  except KeyboardInterrupt:
    _end('', 130)
  except Exception as error:
    if any(word in str(error) for word in BROKEN):
      _lost(error)
    traceback.print_exc()
    _end('error: this process failed as above, and the others with it', 1)
  hosts.leave()


def _lost(error):
  """Ends the process; the runtime does, when it knows who is gone."""
  import time

  said = str(error).splitlines()[0]
  print(
    f'lost touch with another process ({said}): waiting up to '
    f'{HOST_TIMEOUT.value} s to hear which',
    file=sys.stderr,
    flush=True,
  )
  time.sleep(HOST_TIMEOUT.value + 5)
  _end('error: another process is gone', 1)


def _end(message, code):
  from rnn_jax.parallel import hosts

  if message:
    print(message, file=sys.stderr, flush=True)
  hosts.abandon(code)
