"""Kills, signals, full disks, clocks: the same command ends as if unharmed.

Every attempt ends a run of 40 steps early, then gives the same command until it
has finished. Its last checkpoint must have the arrays of a run that nothing
disturbed, to the bit, and its metrics.jsonl each row once.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from benchmarks.harness import measure
from tests.faults import base
from tests.faults import commands
from tests.faults import given

STEPS = 40
LONG = {
  'train.steps': STEPS,
  'train.checkpoint_every': 5,
  'train.log_every': 5,
  'evaluate.every': 10,
}
DAY = 86_400.0  # seconds
LAST = 'trained: all steps'  # what the command prints then
PROMPT = 10.0  # seconds from a signal to the end of the process, at most
TRIES = 4  # times that the command is given again
PHASES = (  # a text of the output, where the phase begins
  ('the start', ''),
  ('the data', 'batches:'),
  ('the compilation', 'parameters:'),
  ('the steps', 'first step after'),
  ('a save', 'step 5/40'),
  ('an evaluation', 'step 10/40'),
  ('the last steps', 'step 35/40'),
  ('the conclusion', LAST),
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SEEN = (  # outputs in which a phase can be seen, until it begins
  {'stdout': 'gone'},
  {'stdout': 'gone', 'stderr': 'gone'},
  {'stdout': 'unread'},
  {'stderr': 'closed'},
  {'stderr': 'full'},
  {'stderr': 'gone'},
)
UNSEEN = (  # outputs that nobody reads: a phase is an eighth of the time
  {'stdout': 'closed'},
  {'stdout': 'full'},
  {'stdout': 'closed', 'stderr': 'closed', 'stdin': 'closed'},
)
GAPS = (0.05, 0.6, 2.5)  # seconds between two signals; one request below 2 s
MEBIBYTES = 2**20
ROWS = 1000  # to predict or to evaluate

Defect = tuple[str, str] | None


class _Runs:
  """Runs of one config, on several servers."""

  def __init__(self, shared: base.Base, servers: list[commands.Server]):
    self._shared = shared
    self.undisturbed = shared.folder / 'undisturbed'
    ended = self.train(servers[0], self.undisturbed)
    if ended.code:
      raise RuntimeError(f'the undisturbed run failed: {ended.err}')
    self._reference = digest(self.undisturbed)

  def train(
    self, server: commands.Server, workdir: pathlib.Path, **options: Any
  ) -> commands.Ended:
    """Gives the command once."""
    arguments = self._shared.train(workdir, **LONG)
    return server.run('train', arguments, timeout=120, **options)

  def ends_well(self, server: commands.Server, workdir: pathlib.Path) -> Defect:
    """Gives the command until it is done. Returns what is wrong, or None."""
    for _ in range(TRIES):
      ended = self.train(server, workdir)
      if defect := _failed(ended):
        return defect
      if ended.code == 0:
        break
    if ended.code:
      return 'lost', f'not finished after {TRIES} more tries: {ended.error}'
    if digest(workdir) != self._reference:
      return 'lost', 'the last checkpoint has other arrays'
    return _check_rows(workdir)


def _failed(ended: commands.Ended) -> Defect:
  last = (ended.err.strip().splitlines() or [''])[-1]
  if 'Traceback (most recent call last)' in ended.err:
    return 'traceback', last
  if ended.killed:
    return 'hang', last
  if ended.code < 0 and not ended.signalled:
    return 'crash', f'signal {-ended.code}'
  return None


def _unsaved(workdir) -> Defect:
  """Whether a run that a signal stopped has steps that it didn't save."""
  try:
    reached = json.loads((workdir / 'goodput.json').read_text())['step']
  except FileNotFoundError:
    return None  # before its first step
  names = [path.name for path in (workdir / 'checkpoints').iterdir()]
  saved = max((int(name) for name in names if name.isdecimal()), default=0)
  if saved != reached:
    return 'lost', f'stopped at step {reached}, saved at step {saved}'
  return None


def _check_rows(workdir) -> Defect:
  text = pathlib.Path(workdir, 'metrics.jsonl').read_text()
  rows = [json.loads(line) for line in text.splitlines()]
  kinds = collections.Counter((row['split'], row['step']) for row in rows)
  wanted = {('train', step) for step in range(5, STEPS + 1, 5)}
  wanted |= {('validation', step) for step in range(10, STEPS + 1, 10)}
  if missing := wanted - set(kinds):
    return 'lost', f'metrics.jsonl lacks {sorted(missing)[:3]}'
  if twice := [key for key, count in kinds.items() if count > 1]:
    return 'lost', f'metrics.jsonl has {twice[0]} twice'
  return None


def digest(workdir: pathlib.Path) -> str:
  """Returns a digest of all arrays of the last checkpoint."""
  folder = workdir / 'checkpoints' / str(STEPS) / 'state'
  with (
    warnings.catch_warnings(),
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader,
  ):
    warnings.simplefilter('ignore')  # of its shardings
    state = reader.restore(folder)
  total = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
    array = np.asarray(leaf)
    total.update(f'{jax.tree_util.keystr(path)} {array.dtype}'.encode())
    total.update(array.tobytes())
  return total.hexdigest()


def kills(count: int) -> measure.Values:
  """SIGKILL at random moments, one to three times a run."""

  def attempts(runs, seconds):
    for number in range(count):
      rng = random.Random(number)
      times = [rng.uniform(0, seconds) for _ in range(rng.randint(1, 3))]
      yield f'kill {number}', _killed(runs, times)

  return _tried(attempts)


def _killed(runs, times):
  def attempt(server, workdir):
    for after in times:
      ended = runs.train(
        server, workdir, after='', delay=after, signal=signal.SIGKILL
      )
      if ended.code == 0:
        break
    return runs.ends_well(server, workdir)

  return attempt


def signals(count: int) -> measure.Values:
  """Each signal in each phase, `count` times, then the same command."""

  def attempts(runs, seconds):
    del seconds
    for number in range(count):
      for phase, text in PHASES:
        for name in SIGNALS:
          delay = random.Random(f'{number}{phase}{name}').uniform(0, 0.4)
          yield (
            f'{name.name} in {phase}, {delay:.2f} s in',
            _signalled(runs, text, delay, name),
          )

  return _tried(attempts)


def _signalled(runs, text, delay, name, machine=None):
  def attempt(server, workdir):
    ended = runs.train(
      server, workdir, after=text, delay=delay, signal=name, machine=machine
    )
    if defect := _failed(ended):
      return defect
    if not ended.signalled and ended.code == 0:
      return None  # it had ended before
    if ended.took > PROMPT:
      return 'hang', f'{ended.took:.1f} s after the signal'
    names = {name, (machine or {}).get('second', name)}
    allowed = {sign for x in names for sign in (128 + x, -x)}
    if ended.code not in {0, *allowed}:
      return 'silent', f'exit {ended.code}'
    if ended.code == 128 + name and 'ended at once' not in ended.err:
      if defect := _unsaved(workdir):
        return defect
    return runs.ends_well(server, workdir)

  return attempt


def outputs(count: int) -> measure.Values:
  """Outputs that nobody reads x phases with a signal, `count` in all."""

  def attempts(runs, seconds):
    every = [*_outputs(runs, seconds)]
    for n in range(count):
      yield every[n * len(every) // count]

  return _tried(attempts)


def _outputs(runs, seconds):
  for phase, (name, text) in enumerate(PHASES):
    for n, machine in enumerate((*SEEN, *UNSEEN)):
      rng = random.Random(f'{phase}{n}')
      asked = SIGNALS[(phase + n) % len(SIGNALS)]
      after, delay = text, rng.uniform(0, 0.4)
      if machine in UNSEEN:
        after, delay = '', seconds * (phase + rng.random()) / len(PHASES)
      yield (
        f'{_words(machine)}: {asked.name} in {name}, {delay:.2f} s in',
        _signalled(runs, after, delay, asked, machine),
      )
  for machine in (*SEEN, *UNSEEN):
    if 'unread' not in machine.values():
      yield f'{_words(machine)}: no signal', _unheard(runs, machine)


def _words(machine):
  return ', '.join(f'{key} {value}' for key, value in machine.items())


def _unheard(runs, machine):
  def attempt(server, workdir):
    ended = runs.train(server, workdir, after='step 5/40', machine=machine)
    if defect := _failed(ended):
      return defect
    if ended.code:
      return 'lost', f'exit {ended.code}'
    return runs.ends_well(server, workdir)

  return attempt


def pairs(count: int) -> measure.Values:
  """Two signals, soon after one another and later, in each phase."""

  def attempts(runs, seconds):
    del seconds
    kinds = [(a, b, gap) for gap in GAPS for a in SIGNALS for b in SIGNALS]
    for number in range(count):
      first, second, gap = kinds[number % len(kinds)]
      phase, text = PHASES[number % len(PHASES)]
      machine = {'second': second, 'gap': gap}
      yield (
        f'{first.name}, {second.name} {gap} s later, in {phase}',
        _signalled(runs, text, 0.1, first, machine),
      )

  return _tried(attempts)


def clocks(count: int) -> measure.Values:
  """Clocks that jump by 400 days, forwards or back, at any moment."""

  def attempts(runs, seconds):
    for number in range(count):
      delay = random.Random(number).uniform(0, seconds)
      jump = (-1) ** number * 400 * DAY
      yield f'a jump after {delay:.1f} s', _jumped(runs, delay, jump)

  return _tried(attempts)


def _jumped(runs, delay, jump):
  def attempt(server, workdir):
    ended = runs.train(server, workdir, delay=delay, jump=jump)
    if defect := _failed(ended):
      return defect
    if ended.code and not ended.error:
      return 'misleading', ended.err[-200:]
    return runs.ends_well(server, workdir)

  return attempt


def disks(count: int) -> measure.Values:
  """Disks that fill at any point; then they have space."""

  def attempts(runs, seconds):
    del seconds
    largest = 1.5 * _size(runs.undisturbed)
    for number in range(count):
      size = int(largest * (number + 1) / count)
      yield f'a disk of {size / 1024:,.0f} KiB', _filled(runs, size)

  return _tried(attempts)


def _filled(runs, size):
  def attempt(server, workdir):
    workdir.mkdir()
    with _disk(workdir, size):
      ended = runs.train(server, workdir / 'run')
      if defect := _failed(ended):
        return defect
      if ended.code and not ended.error:
        return 'misleading', ended.err[-200:]
      _mount(workdir, 256 * MEBIBYTES, 'remount')
      return runs.ends_well(server, workdir / 'run')

  return attempt


def results(count: int) -> measure.Values:
  """Disks that fill under predictions, and under scores."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    servers = [commands.Server() for _ in range(min(measure.cores(), 4))]
    try:
      shared = base.Base.make(folder, servers[0])
      attempts = [*_results(shared, folder / 'rows.jsonl', count)]
      return _run_all(attempts, servers, folder)
    finally:
      for server in servers:
        server.close()


def _results(shared, rows, count):
  """Yields (name, attempt): half of them predict, half evaluate."""
  run = given.classifier_of(shared)
  rows.write_bytes(given.ROW * ROWS)
  for number in range(count):
    # 140 bytes of a predicted row; 300 kB of scores and pictures.
    size = (10 + 200 * (number // 2) // (count // 2)) * 1024
    if number % 2:
      name = f'scores, with {size / 1024:,.0f} KiB left'
      yield name, _scored(run, rows, size)
    else:
      name = f'predictions, on a disk of {size / 1024:,.0f} KiB'
      yield name, _predicted(run, rows, size)


def _predicted(run, rows, size):
  def attempt(server, folder):
    folder.mkdir()
    with _disk(folder, size):
      path = folder / 'out.jsonl'
      ended = server.run(
        'predict', [f'--workdir={run}', f'--input={rows}', f'--output={path}']
      )
      if defect := _failed(ended) or _unexplained(ended):
        return defect
      lines = path.read_text().splitlines()
    if not ended.code and len(lines) != ROWS:
      return 'silent', f'{len(lines)} of {ROWS} rows'
    for line in lines[:-1]:  # the disk may have been full within the last one
      json.loads(line)
    return None

  return attempt


def _scored(run, rows, size):
  def attempt(server, folder):
    folder.mkdir()
    with _disk(folder, _pages(run) + size):
      copied = base.copy(run, folder)
      flags = [f'--workdir={copied}', f'--input={rows}', '--json']
      ended = server.run('evaluate', flags, timeout=60)
      if defect := _failed(ended) or _unexplained(ended):
        return defect
      _mount(folder, 64 * MEBIBYTES, 'remount')
      ended = server.run('evaluate', flags, timeout=60)
      if ended.code:
        return 'refused', ended.error
      return _failed(ended) or given.finite(folder, ended)

  return attempt


def _unexplained(ended) -> Defect:
  """A command that failed must name the disk."""
  if ended.code and not re.search('No space left|disk', ended.error):
    return 'misleading', ended.error or ended.err[-200:]
  return None


@contextlib.contextmanager
def _disk(folder, size) -> Iterator[None]:
  _mount(folder, size)
  try:
    yield
  finally:
    subprocess.run(['umount', '-l', folder], check=True)


def _mount(folder, size, *options):
  options = ','.join([f'size={size}', *options])
  subprocess.run(
    ['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', folder],
    check=True,
    capture_output=True,
  )


def _pages(folder):
  """The bytes that a folder's files take on a small disk."""
  page = os.sysconf('SC_PAGE_SIZE')
  files = (path for path in folder.rglob('*') if path.is_file())
  return sum(-(-path.stat().st_size // page) * page for path in files)


def _size(folder):
  return sum(
    path.stat().st_size for path in folder.rglob('*') if path.is_file()
  )


def _tried(
  make: Callable[[_Runs, float], Iterator[tuple[str, Callable[..., Defect]]]],
) -> measure.Values:
  """Runs attempts, each with a folder of its own, on all cores."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    servers = [commands.Server() for _ in range(min(measure.cores(), 4))]
    try:
      shared = base.Base.make(folder, servers[0])
      runs = _Runs(shared, servers)
      again = runs.train(servers[0], folder / 'timed')  # now with its programs
      attempts = [*make(runs, again.seconds)]
      return _run_all(attempts, servers, folder)
    finally:
      for server in servers:
        server.close()


def _run_all(attempts, servers, folder):
  free = list(servers)

  def one(number):
    name, attempt = attempts[number]
    server = free.pop()
    try:
      defect = attempt(server, folder / f'{number}')
    finally:
      free.append(server)
    commands.log(f'{": ".join(defect) if defect else "well"} | {name}')
    base.remove(folder / f'{number}')
    return defect

  with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
    defects = [*pool.map(one, range(len(attempts)))]
  return commands.summary([name for name, _ in attempts], defects)


def can_mount() -> bool:
  """Whether this process may mount small disks."""
  if os.getuid():
    return False
  with tempfile.TemporaryDirectory() as folder:
    try:
      with _disk(folder, MEBIBYTES):
        return True
    except (OSError, subprocess.CalledProcessError):
      return False
