"""Attempts: commands, what each must do, and what went wrong if it didn't."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import measure
from rnn_jax.command_line import PIPE_CLOSED
from tests.faults import base

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT = 60.0  # seconds until an attempt that still runs gets a SIGTERM
SILENCE = 12.0  # seconds without a line
MEMORY = 4 * 2**30  # bytes, the most of any attempt
KINDS = (
  'code run',  # of a stranger
  'hang',  # needed SIGKILL
  'crash',  # ended by a signal that nobody sent
  'traceback',
  'silent',  # exit 0 for what must be refused, or numbers that aren't finite
  'refused',  # what must work
  'misleading',  # the line doesn't name what is wrong
  'quiet',  # too long without a line
  'memory',
  'lost',  # data, a checkpoint or a row
)

Defect = tuple[str, str] | None  # one of KINDS, and words


@dataclasses.dataclass(frozen=True)
class Ended:
  """How a command ended.

  Attributes:
    code: the exit code, negative if a signal ended it.
    out: its standard output.
    err: its standard error.
    seconds: how long it ran.
    silence: the longest time without output, in seconds.
    peak: its resident bytes.
    signalled: whether it was sent a signal.
    took: seconds from the signal to its end; None without.
    killed: whether it needed SIGKILL.
    left: whether it left processes running.
  """

  code: int
  out: str
  err: str
  seconds: float
  silence: float
  peak: int
  signalled: bool
  took: float | None
  killed: bool
  left: bool

  @property
  def error(self) -> str:
    """The line that says why it ended; '' if there is none."""
    lines = re.findall(r'^error: (.*)', self.err, re.M)
    return lines[-1] if lines else ''


@dataclasses.dataclass(frozen=True)
class Attempt:
  """A hostile or unlucky command.

  Attributes:
    name: what is tried.
    launcher: of launch/.
    arguments: of it; or a function of a fresh folder that returns them.
    expects: 'refusal', 'success', 'quiet': what a closed pipe ends, without a
      line; or 'either': whichever of refusal and success is right is up to
      the program, but it says so.
    says: a pattern that the line of a refusal holds.
    check: of (folder, Ended), returns a defect or None.
    timeout: seconds.
    environment: variables to set.
    machine: what it meets, see machine.py.
  """

  name: str
  launcher: str
  arguments: Sequence[str] | base.Arguments
  expects: str = 'refusal'
  says: str = ''
  check: Callable[[pathlib.Path, Ended], Defect] | None = None
  timeout: float = TIMEOUT
  environment: dict[str, str] = dataclasses.field(default_factory=dict)
  machine: dict[str, Any] = dataclasses.field(default_factory=dict)


class Server:
  """Starts launchers quickly; see server.py. One at a time."""

  def __init__(self) -> None:
    self._process = subprocess.Popen(
      [sys.executable, '-m', 'tests.faults.server'],
      cwd=ROOT,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def run(
    self,
    launcher: str,
    arguments: Sequence[str],
    timeout: float = TIMEOUT,
    after: str = '',
    delay: float = 0.0,
    signal: int = 0,
    environment: dict[str, str] | None = None,
    jump: float = 0.0,
    machine: dict[str, Any] | None = None,
  ) -> Ended:
    """Runs a launcher to its end.

    Args:
      launcher: of launch/.
      arguments: of it.
      timeout: seconds, after which it gets a SIGTERM.
      after: a text of its output; `delay` seconds later it gets `signal`.
      delay: seconds.
      signal: 0: none.
      environment: variables to set.
      jump: seconds that its clock jumps, `delay` after it started.
      machine: what it meets, see machine.py.
    """
    with tempfile.TemporaryDirectory() as folder:
      paths = {name: f'{folder}/{name}' for name in ('out', 'err')}
      for path in paths.values():
        pathlib.Path(path).touch()
      request = {
        'launcher': launcher,
        'arguments': [str(text) for text in arguments],
        'timeout': timeout,
        'after': after,
        'delay': delay,
        'signal': int(signal),
        'environment': environment or {},
        'jump': jump,
        'machine': machine or {},
        **paths,
      }
      self._process.stdin.write(json.dumps(request) + '\n')
      self._process.stdin.flush()
      answer = json.loads(self._process.stdout.readline())
      encoding = request['machine'].get('encoding', 'utf-8')
      texts = {
        name: pathlib.Path(path).read_text(encoding, errors='replace')
        for name, path in paths.items()
      }
    return Ended(**texts, **answer)

  def close(self) -> None:
    """Ends the server."""
    self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()


@contextlib.contextmanager
def started(most: int = 4) -> Iterator[tuple[list[Server], base.Base]]:
  """Servers, at most one for each core, and the files that attempts share."""
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    count = min(measure.cores(), most)
    servers = [
      stack.enter_context(contextlib.closing(Server())) for _ in range(count)
    ]
    yield servers, base.Base.make(pathlib.Path(folder), servers[0])


def tried(group: str, limit: int = 0) -> measure.Values:
  """Runs a group of attempts. Returns how many, and what went wrong.

  Args:
    group: 'module.function' of this folder; of the files that all attempts
      share it returns them.
    limit: how many of them, evenly spread; 0: all.
  """
  with started() as (servers, shared):
    return run_attempts(chosen(group, shared, limit), servers, shared)


def chosen(group: str, shared: base.Base, limit: int) -> list[Attempt]:
  """Returns the attempts of a group, or at most `limit`, evenly spread."""
  module, _, function = group.rpartition('.')
  module = importlib.import_module(f'{__package__}.{module}')
  return spread([*getattr(module, function)(shared)], limit)


def spread(every: Sequence[Any], limit: int) -> list[Any]:
  """Returns at most `limit` of them, evenly spread; 0: all."""
  count = min(limit or len(every), len(every))
  return [every[n * len(every) // count] for n in range(count)]


def run_attempts(
  attempts: Sequence[Attempt], servers: Sequence[Server], shared: base.Base
) -> measure.Values:
  """Runs attempts, one at a time on each server. Returns their summary."""
  silences = []

  def run(attempt, server, folder):
    folder.mkdir()
    arguments = attempt.arguments
    ended = server.run(
      attempt.launcher,
      arguments(folder) if callable(arguments) else arguments,
      attempt.timeout,
      environment=attempt.environment,
      machine=attempt.machine,
    )
    silences.append(ended.silence)
    return judge(attempt, ended, folder, shared)

  jobs = [(each.name, functools.partial(run, each)) for each in attempts]
  values = run_jobs(jobs, servers, shared.folder)
  return values | {'longest_silence': max(silences, default=0.0)}


def run_jobs(
  jobs: Sequence[tuple[str, Callable[[Server, pathlib.Path], Defect]]],
  servers: Sequence[Server],
  folder: pathlib.Path,
) -> measure.Values:
  """Runs (name, job) on all servers. Returns their summary.

  A job gets a server for itself, and a path in `folder` that is removed.
  """
  free = queue.SimpleQueue()
  for server in servers:
    free.put(server)

  def one(number):
    name, job = jobs[number]
    server, own = free.get(), folder / f'{number}'
    try:
      defect = job(server, own)
    finally:
      free.put(server)
    log(name, defect)
    base.remove(own)
    return defect

  with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
    defects = [*pool.map(one, range(len(jobs)))]
  return summary([name for name, _ in jobs], defects)


def summary(names: Sequence[str], defects: Sequence[Defect]) -> measure.Values:
  """Returns a row's values: how many were tried, and how many of each kind."""
  counts = collections.Counter(defect[0] for defect in defects if defect)
  return {
    'tried': len(names),
    'survived': len(names) - sum(counts.values()),
    'longest_silence': 0.0,
    **{kind.replace(' ', '_'): counts[kind] for kind in KINDS},
    'defects': [
      {'name': name, 'kind': defect[0], 'words': defect[1][:300]}
      for name, defect in zip(names, defects, strict=True)
      if defect
    ],
  }


def judge(
  attempt: Attempt, ended: Ended, folder: pathlib.Path, shared: base.Base
) -> Defect:
  """Returns what is wrong, or None if all is well."""
  if shared.canary.exists():
    shared.canary.unlink()
    return 'code run', ''
  for kind, wrong, words in _checks(attempt, ended):
    if wrong:
      return kind, words
  return attempt.check(folder, ended) if attempt.check else None


def _checks(attempt, ended):
  """Yields (kind of defect, whether it is one, words), the gravest first."""
  last = (ended.err.strip().splitlines() or [''])[-1]
  stopped = ended.signalled and ended.code in (143, -15)
  worked = ended.code == 0 or stopped
  yield 'hang', ended.killed, last
  yield 'crash', ended.code < 0 and not stopped, f'signal {-ended.code}: {last}'
  yield 'traceback', 'Traceback (most recent call last)' in ended.err, last
  yield 'memory', ended.peak > MEMORY, f'{ended.peak / 2**30:.1f} GiB: {last}'
  if not attempt.machine.get('stdout'):  # there the lines would be
    yield 'quiet', ended.silence > SILENCE, f'{ended.silence:.0f} s: {last}'
  if attempt.expects == 'quiet':
    quiet = ended.code == PIPE_CLOSED and not ended.error
    yield 'misleading', not quiet, f'exit {ended.code}: {last}'
    return
  if attempt.expects == 'refusal':
    yield 'hang', stopped, f'not refused within {attempt.timeout:g} s'
    yield 'silent', worked, ended.out[-100:]
  if not worked:
    lacks = ended.code not in (1, 2) or not ended.error
    yield 'misleading', lacks, f'exit {ended.code}: {last}'
    yield 'refused', attempt.expects == 'success', ended.error
    named = re.search(attempt.says, ended.error)
    yield 'misleading', not named, ended.error


def log(name: str, defect: Defect) -> None:
  """Adds a line to the file of the variable FAULTS_LOG, if it is set."""
  if path := os.environ.get('FAULTS_LOG'):
    with open(path, 'a') as file:
      file.write(f'{": ".join(defect) if defect else "well"} | {name}\n')
