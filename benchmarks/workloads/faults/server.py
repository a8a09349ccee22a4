"""Runs launchers, each in a process forked from one that has imported jax.

  python -m benchmarks.workloads.faults.server

It reads a request per line, and writes how that launcher ended, both as JSON;
commands.py is its client. A fork has run no program of jax yet, and imports the
launcher itself, as `python -m` does.
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
    child = os.fork()
    if not child:
      return request
    print(json.dumps(_watch(child, request, begin)), flush=True)
  return None


def _watch(child, request, begin):
  """Waits for the process, with the request's signal if it is due."""
  files = [pathlib.Path(request[name]) for name in ('out', 'err')]
  signals = [(request['after'], request['delay'], request['signal'])]
  signals = signals if request['signal'] else []
  seen, silent_since, silence = 0, begin, 0.0
  asked = killed = None
  peak = 0
  while True:
    pid, status, usage = os.wait4(child, os.WNOHANG)
    now = time.monotonic()
    written = sum(path.stat().st_size for path in files if path.exists())
    if written != seen or pid:
      silence = max(silence, now - silent_since)
      seen, silent_since = written, now
    if pid:
      break
    if signals and asked is None and _due(signals[0], files, now):
      asked = now
      os.kill(child, signals[0][2])
    if asked is None and now - begin > request['timeout']:
      asked = now
      os.kill(child, signal.SIGTERM)
    if asked is not None and now - asked > GRACE and not killed:
      killed = True
      os.killpg(child, signal.SIGKILL)
    time.sleep(POLL)
  peak = usage.ru_maxrss * 1024
  try:
    os.killpg(child, signal.SIGKILL)  # what it left running
    left = True
  except ProcessLookupError:
    left = False
  return {
    'code': os.waitstatus_to_exitcode(status),
    'seconds': now - begin,
    'silence': silence,
    'peak': peak,
    'signalled': asked is not None,
    'took': now - asked if asked is not None else None,
    'killed': bool(killed),
    'left': left,
  }


_since = {}


def _due(what, files, now):
  """Whether the output holds the text since `delay` seconds."""
  text, delay, _ = what
  if any(text in path.read_text(errors='replace') for path in files):
    return now - _since.setdefault(str(files[0]), now) >= delay
  return False


def become(request):
  """Turns this process into one that runs the request's launcher."""
  os.setsid()
  ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # follow the server
  for path, stream in (('out', 1), ('err', 2)):
    file = os.open(request[path], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, stream)
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  sys.stdin = os.fdopen(0)
  os.environ.update(request['environment'])
  name = f'launch.{request["launcher"]}'
  sys.argv = [f'launch/{request["launcher"]}.py', *request['arguments']]
  runpy.run_module(name, run_name='__main__', alter_sys=True)


if __name__ == '__main__':
  if asked := serve():
    become(asked)
