"""Runs launchers, each in a process forked from one that has imported jax.

  python -m tests.faults.server

It reads a request per line, and writes how that launcher ended, both as JSON;
commands.py is its client. A fork has run no program of jax yet, and imports the
launcher itself, as `python -m` does. machine.py is what else it meets.
"""

import ctypes
import gc
import json
import os
import pathlib
import runpy
import signal
import sys
import time

from tests.faults import machine as machine_lib

POLL = 0.02  # seconds
GRACE = 12.0  # seconds from the signal to SIGKILL
PRELOADED = (
  'matplotlib.figure',
  'rnn_jax.data.preparation.prepare',
  'rnn_jax.evaluation.run',
  'rnn_jax.inference.generate',
  'rnn_jax.training.loop',
)


def serve():
  """Answers requests. Returns one in the process that is to run it."""
  for name in PRELOADED:
    __import__(name)
  gc.freeze()
  for line in sys.stdin:
    request = json.loads(line)
    begin = time.monotonic()
    readers = machine_lib.open_readers(request)
    child = os.fork()
    if not child:
      return request
    print(json.dumps(_watch(child, request, begin, readers)), flush=True)
  return None


def _watch(child, request, begin, readers):
  """Waits for the process, with the request's signal if it is due."""
  for reader in readers:
    reader.begin()
  files = [pathlib.Path(request[name]) for name in ('out', 'err')]
  asks = _Signal(request, files)
  seen, silent_since, silence = 0, begin, 0.0
  asked = killed = None
  while True:
    pid, status, usage = os.wait4(child, os.WNOHANG)
    for reader in readers:
      reader.read(asks.has_begun)
    now = time.monotonic()
    written = sum(path.stat().st_size for path in files)
    if written != seen or pid:
      silence = max(silence, now - silent_since)
      seen, silent_since = written, now
    if pid:
      break
    if asked is None and asks.is_due(now):
      asked = now
      os.kill(child, request['signal'])
    if asked is not None and asks.is_second_due(now - asked):
      os.kill(child, request['machine']['second'])
    if asked is None and now - begin > request['timeout']:
      asked = now
      os.kill(child, signal.SIGTERM)
    if asked is not None and now - asked > GRACE and not killed:
      killed = True
      os.killpg(child, signal.SIGKILL)
    time.sleep(POLL)
  for reader in readers:
    reader.read(enough=False)
    reader.close()
  try:
    os.killpg(child, signal.SIGKILL)  # what it left running
    left = True
  except ProcessLookupError:
    left = False
  return {
    'code': os.waitstatus_to_exitcode(status),
    'seconds': now - begin,
    'silence': silence,
    'peak': usage.ru_maxrss * 1024,
    'signalled': asked is not None,
    'took': now - asked if asked is not None else None,
    'killed': bool(killed),
    'left': left,
  }


class _Signal:
  """The signal of a request, due some time after a text of the output."""

  def __init__(self, request, files):
    self._request, self._files = request, files
    self._since = None
    self._second = request['machine'].get('second')

  @property
  def has_begun(self):
    """Whether the text has come."""
    return self._since is not None

  def is_second_due(self, seconds):
    """Whether to send the second signal, once, so long after the first."""
    if not self._second or seconds < self._request['machine']['gap']:
      return False
    self._second = None
    return True

  def is_due(self, now):
    if self._since is None and any(
      self._request['after'] in path.read_text(errors='replace')
      for path in self._files
    ):
      self._since = now
    return (
      self._request['signal']
      and self._since is not None
      and now - self._since >= self._request['delay']
    )


def become(request):
  """Turns this process into one that runs the request's launcher."""
  os.setsid()
  # Programs in the background of a shell, and under nohup, ignore these.
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # follow the server
  for path, stream in (('out', 1), ('err', 2)):
    file = os.open(request[path], os.O_WRONLY | os.O_APPEND)
    os.dup2(file, stream)
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  sys.stdin = os.fdopen(0)
  # What it writes to a relative path goes with the request's files.
  os.chdir(pathlib.Path(request['out']).parent)
  os.environ.update(request['environment'])
  machine_lib.apply(request)
  if request['jump']:
    _set_clock(request['delay'], request['jump'])
  name = f'launch.{request["launcher"]}'
  sys.argv = [f'launch/{request["launcher"]}.py', *request['arguments']]
  runpy.run_module(name, run_name='__main__', alter_sys=True)


def _set_clock(delay, jump):
  """Moves Python's clock by `jump` seconds, `delay` seconds from now."""
  clock, begin = time.time, time.monotonic()

  def jumped():
    return clock() + (jump if time.monotonic() - begin > delay else 0)

  time.time = jumped
  time.time_ns = lambda: int(jumped() * 1e9)


if __name__ == '__main__':
  if asked := serve():
    become(asked)
