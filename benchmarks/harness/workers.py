"""Runs cases in processes of their own, and survives whatever these do."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from multiprocessing import connection

from benchmarks.harness import case as case_lib
from benchmarks.harness import measure
from rnn_jax.system import subprocesses

ROOT = pathlib.Path(__file__).parents[2]
SHARING = {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
COMMAND = (sys.executable, '-m', 'benchmarks.harness.worker')


class Worker:
  """The process of a case, started at once; closed by `with`.

  Args:
    case: what it measures.
    waits: 'turns' if it takes turns, 'alone' if it waits once until it has the
      device alone (turns.py), else ''.

  Attributes:
    case: what it measures.
    seconds: of its turns, see turns.py.
    result: what it measured, or a dict with `error`; None while it runs.
      `failure` is then 'exception', 'killed' or 'timeout'.
  """

  def __init__(self, case: case_lib.Case, waits: str = '') -> None:
    self.case = case
    self.seconds: list[float] = []
    self.result: measure.Values | None = None
    self._close = contextlib.ExitStack()
    folder = self._close.enter_context(tempfile.TemporaryDirectory())
    output = pathlib.Path(folder, 'output').open('w+')  # noqa: SIM115
    self._output = self._close.enter_context(output)
    self._result = pathlib.Path(folder, 'result')
    given = pathlib.Path(folder, 'case')
    others = {'repeats': case.repeats, 'rehearsal': case.rehearsal}
    given.write_text(json.dumps(case.identity() | others))
    flags = {'case': given, 'result': self._result}
    ours, theirs = socket.socketpair()
    with theirs:
      if waits:
        flags[waits] = theirs.fileno()
      self._process = self._start(flags, [theirs.fileno()] * bool(waits))
    self._pipe = connection.Connection(ours.detach())
    self._close.callback(self._pipe.close)
    self._close.callback(self._kill)

  def __enter__(self) -> 'Worker':
    return self

  def __exit__(self, *error: object) -> None:
    self._close.close()

  def wait_for_request(self) -> None:
    """Waits until the process asks for a turn, or ends: then there's a result.

    It notes how long the turn before this one took.
    """
    try:
      if not self._pipe.poll(self.case.timeout):
        self._end(None)
      elif (seconds := self._pipe.recv()) is not None:
        self.seconds.append(seconds)
    except (EOFError, ConnectionError):
      self.finish()

  def take_turn(self) -> None:
    """Lets the process run one turn, to its end."""
    with contextlib.suppress(ConnectionError):
      self._pipe.send(True)
    self.wait_for_request()

  def finish(self) -> measure.Values:
    """Waits for the process's end. Returns its result."""
    if self.result is None:
      with contextlib.suppress(ConnectionError, OSError):
        self._pipe.send(False)
      try:
        self._end(self._process.wait(self.case.timeout))
      except subprocess.TimeoutExpired:
        self._end(None)
    return self.result

  def _start(self, flags, descriptors):
    command = [
      self.case.interpreter or COMMAND[0],
      *COMMAND[1:],
      *(f'--{name}={value}' for name, value in flags.items()),
    ]
    return subprocess.Popen(
      subprocesses.following(command),
      cwd=ROOT,
      env=_variables(self.case) | (SHARING if 'alone' in flags else {}),
      stdin=subprocess.DEVNULL,
      stdout=self._output,
      stderr=self._output,
      pass_fds=descriptors,
      start_new_session=True,
    )

  def _end(self, code):
    """Takes the result of a process with that exit code; None: out of time."""
    self._kill()
    if code == 0 and self._result.exists():
      self.result = json.loads(self._result.read_text())
    else:
      self._output.seek(0)
      self.result = _failure(code, self.case.timeout, self._output.read())

  def _kill(self):
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()


def run(case: case_lib.Case) -> measure.Values:
  """The result of a case by itself, see Worker."""
  with Worker(case) as worker:
    return worker.finish()


def run_side_by_side(
  cases: Sequence[case_lib.Case],
) -> Iterator[measure.Values]:
  """Yields the results of cases that start and compile side by side.

  Each waits before its first timed call until all others wait too or are done,
  and then has the device alone; see turns.py.
  """
  with contextlib.ExitStack() as stack:
    members = [stack.enter_context(Worker(case, 'alone')) for case in cases]
    for member in members:
      member.wait_for_request()
    for member in members:
      if member.result is None:
        member.take_turn()
      yield member.finish()


def environment(interpreter: str = '') -> measure.Values:
  """rows.environment() of a process such as the cases run in.

  Args:
    interpreter: see case_lib.Case.

  Raises:
    RuntimeError: it can't be started.
  """
  probe = case_lib.Case(
    'environment',
    'harness.rows.environment',
    repeats=0,
    interpreter=interpreter,
  )
  values = run(probe)
  if 'error' in values:
    raise RuntimeError(values['error'])
  del values['process_peak_bytes']  # of this probe
  return values


def _variables(case):
  """This process's variables and the case's; XLA_FLAGS add up."""
  both = {**os.environ, **case.environment}
  given, added = (e.get('XLA_FLAGS') for e in (os.environ, case.environment))
  if given and added:
    both['XLA_FLAGS'] = f'{given} {added}'
  return both


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
