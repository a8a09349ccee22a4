"""Several processes of a launcher on this machine, as one job.

They fork from one process that has imported JAX and the package: a start of
Python and these imports take longer than the few steps of a run.
"""

import atexit
import multiprocessing
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver
from unittest import mock

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
FORKS = multiprocessing.get_context('forkserver')
FORKS.set_forkserver_preload(['tests.support.preloaded'])


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


class Process:
  """One of `python -m launch.<name>`, with subprocess.Popen's methods."""

  def __init__(self, name, *flags, env):
    self._folder = tempfile.TemporaryDirectory()
    paths = [pathlib.Path(self._folder.name, name) for name in ('out', 'err')]
    arguments = name, [*map(str, flags)], env, paths
    self._paths = paths
    self._process = FORKS.Process(target=_launch, args=arguments, daemon=True)
    # What JAX reads when it is imported.
    with mock.patch.dict(os.environ, {'JAX_PLATFORMS': 'cpu'}):
      forkserver.ensure_running()
    self._process.start()

  @property
  def returncode(self):
    return self._process.exitcode

  poll = returncode.fget

  def send_signal(self, number):
    os.kill(self._process.pid, number)

  def kill(self):
    self.send_signal(signal.SIGKILL)

  def read_line(self):
    """Waits for the first line of its stdout. Returns it."""
    path = self._paths[0]
    while not path.exists() or not path.read_text().count('\n'):
      assert self.poll() is None, self.communicate()
      time.sleep(0.02)
    return path.read_text().splitlines()[0]

  def communicate(self, timeout=None):
    """Waits for its end. Returns (stdout, stderr)."""
    self._process.join(timeout)
    if self.returncode is None:
      raise subprocess.TimeoutExpired('launch', timeout)
    return tuple(path.read_text() for path in self._paths)


def _launch(name, flags, env, paths):
  """What the process does: as Python itself, by `-m`."""
  for number, path in enumerate(paths, 1):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, number)
    os.close(descriptor)
  os.environ.clear()
  os.environ.update(env)
  sys.path.insert(0, str(tiny.WITHOUT))
  sys.argv = [name, *flags]
  try:
    runpy.run_module(f'launch.{name}', run_name='__main__', alter_sys=True)
  finally:
    atexit._run_exitfuncs()


def start(name, own, devices=1):
  """Starts a process for each of the flags in `own`."""
  port = free_port()
  return [
    Process(
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
  end = time.monotonic() + 1200
  while time.monotonic() < end:
    rows = metrics.read(workdir)
    if rows and rows[-1]['step'] >= step:
      return
    for process in processes:
      assert process.poll() is None, process.communicate()
    time.sleep(0.02)
  raise AssertionError(f'no step {step} in time')
