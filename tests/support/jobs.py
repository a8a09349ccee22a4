"""Several processes of a launcher on this machine, as one job."""

import os
import socket
import time

from rnn_jax.runs import metrics
from tests.support import tiny
from tests.support import virtual

# The runtime looks for a SIGTERM once a second: a step of these runs takes so
# long that there are some left when it has.
SLOW = """

from rnn_jax.training import hooks

add_all = hooks.add_all


def slowly(trainer, stop):
  import time

  add_all(trainer, stop)
  trainer.add_hook(lambda trainer: time.sleep(0.3))


hooks.add_all = slowly
"""


def free_port():
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    return listener.getsockname()[1]


def environment(devices=1):
  count = f'--xla_force_host_platform_device_count={devices}'
  flags = ' '.join((count, *virtual.QUICK, *virtual.processor()))
  # The compiler divides work among threads, of which it else takes one for each
  # core or device: on one core, a process of two devices would round otherwise.
  threads = {'NPROC': '2'}
  return os.environ | threads | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags}


def start(name, own, devices=1):
  """Starts a process for each of the flags in `own`."""
  port = free_port()
  return [
    tiny.launch(
      name,
      *flags,
      f'--coordinator=127.0.0.1:{port}',
      f'--processes={len(own)}',
      f'--process={n}',
      env=environment(devices),
    )
    for n, flags in enumerate(own)
  ]


def finish(processes):
  """Returns (exit code, stdout, stderr) of each."""
  return [tiny.finish(process) for process in processes]


def wait_for_step(processes, workdir, step):
  """Returns when the run has come that far; fails if a process ends before."""
  end = time.monotonic() + 240
  while time.monotonic() < end:
    rows = metrics.read(workdir)
    if rows and rows[-1]['step'] >= step:
      return
    for process in processes:
      assert process.poll() is None, process.communicate()
    time.sleep(0.02)
  raise AssertionError(f'no step {step} in time')
