"""Runs a case in a process of its own, and survives whatever it does."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from benchmarks.harness import case as case_lib
from benchmarks.harness import measure
from rnn_jax import subprocesses

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = (sys.executable, '-m', 'benchmarks.harness.worker')


def run(case: case_lib.Case) -> measure.Values:
  """What the case measured; on failure a dict with `error`.

  `failure` is then 'exception', 'killed', 'timeout' or 'missing'.
  """
  with tempfile.TemporaryDirectory() as folder:
    files = {name: pathlib.Path(folder, name) for name in ('case', 'result')}
    files['case'].write_text(
      json.dumps(case.identity() | {'repeats': case.repeats})
    )
    with open(pathlib.Path(folder, 'output'), 'w+') as output:
      code = _wait(_start(case, files, output), case.timeout)
      if code == 0 and files['result'].exists():
        return json.loads(files['result'].read_text())
      output.seek(0)
      return _failure(code, case.timeout, output.read())


def environment() -> measure.Values:
  """rows.environment() of a process such as the cases run in.

  Raises:
    RuntimeError: it can't be started.
  """
  probe = case_lib.Case('environment', 'harness.rows.environment', repeats=0)
  values = run(probe)
  if 'error' in values:
    raise RuntimeError(values['error'])
  del values['process_peak_bytes']  # of this probe
  return values


def _start(case, files, output):
  flags = (f'--{name}={path}' for name, path in files.items())
  return subprocess.Popen(
    subprocesses.following([*COMMAND, *flags]),
    cwd=ROOT,
    env=_variables(case),
    stdin=subprocess.DEVNULL,
    stdout=output,
    stderr=output,
    start_new_session=True,
  )


def _variables(case):
  """This process's variables and the case's; XLA_FLAGS add up."""
  both = {**os.environ, **case.environment}
  given, added = (e.get('XLA_FLAGS') for e in (os.environ, case.environment))
  if given and added:
    both['XLA_FLAGS'] = f'{given} {added}'
  return both


def _wait(process, timeout):
  """The exit code; None if time ran out. Leaves no process running."""
  try:
    return process.wait(timeout)
  except subprocess.TimeoutExpired:
    return None
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(code, timeout, output):
  if code is None:
    return {'failure': 'timeout', 'error': f'not done after {timeout:g} s'}
  killed = code < 0
  message = f'exit code {code}'
  if killed:
    message = f'killed by {signal.Signals(-code).name}'
  if lines := output.strip().splitlines():
    message += f': {lines[-1][:300]}'
  return {'failure': 'killed' if killed else 'exception', 'error': message}
