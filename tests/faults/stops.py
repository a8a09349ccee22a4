"""Kills, signals, full disks, clocks: the same command ends as if unharmed.

Every attempt ends a run of 40 steps early, then gives the same command until it
has finished. Its last checkpoint must have the arrays of a run that nothing
disturbed, to the bit, and its metrics.jsonl each row once.
"""

import collections
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

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

Defect = commands.Defect
# Names, and what makes the attempts on a server in a folder.
Jobs = Iterable[
  tuple[str, Callable[[commands.Server, pathlib.Path], commands.Defect]]
]
FULL = 'No space left|disk'  # what a command that failed names then


class _Runs:
  """Runs of one config, on several servers."""

  def __init__(self, shared: base.Base, server: commands.Server):
    self.shared = shared
    self.undisturbed = shared.folder / 'undisturbed'
    ended = self.train(server, self.undisturbed)
    if ended.code:
      raise RuntimeError(f'the undisturbed run failed: {ended.err}')
    self._reference = digest(self.undisturbed)

  def train(
    self, server: commands.Server, workdir: pathlib.Path, **options: Any
  ) -> commands.Ended:
    """Gives the command once."""
    arguments = self.shared.train(workdir, **LONG)
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


def kills(runs: _Runs, seconds: float, count: int) -> Jobs:
  """SIGKILL at random moments, one to three times a run."""
  for number in range(count):
    rng = random.Random(number)
    times = [rng.uniform(0, seconds) for _ in range(rng.randint(1, 3))]
    yield f'kill {number}', functools.partial(_killed, runs, times)


def _killed(runs, times, server, workdir) -> Defect:
  for after in times:
    ended = runs.train(
      server, workdir, after='', delay=after, signal=signal.SIGKILL
    )
    if ended.code == 0:
      break
  return runs.ends_well(server, workdir)


def signals(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Each signal in each phase, `count` times, then the same command."""
  del seconds
  for number in range(count):
    for phase, text in PHASES:
      for name in SIGNALS:
        delay = random.Random(f'{number}{phase}{name}').uniform(0, 0.4)
        yield (
          f'{name.name} in {phase}, {delay:.2f} s in',
          functools.partial(_signalled, runs, _Signal(text, delay, name), {}),
        )


class _Signal(NamedTuple):
  """A signal, `delay` seconds after a text of the output."""

  after: str
  delay: float
  signal: int


def _signalled(runs, asked, machine, server, workdir) -> Defect:
  ended = runs.train(server, workdir, machine=machine, **asked._asdict())
  if defect := _failed(ended):
    return defect
  if not ended.signalled and ended.code == 0:
    return None  # it had ended before
  if ended.took > PROMPT:
    return 'hang', f'{ended.took:.1f} s after the signal'
  names = {asked.signal, machine.get('second', asked.signal)}
  if ended.code not in {0, *(sign for x in names for sign in (128 + x, -x))}:
    return 'silent', f'exit {ended.code}'
  if ended.code == 128 + asked.signal and 'ended at once' not in ended.err:
    if defect := _unsaved(workdir):
      return defect
  return runs.ends_well(server, workdir)


def outputs(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Outputs that nobody reads x phases with a signal, `count` in all."""
  return commands.spread([*_outputs(runs, seconds)], count)


def _outputs(runs, seconds):
  for phase, (name, text) in enumerate(PHASES):
    for n, machine in enumerate((*SEEN, *UNSEEN)):
      rng = random.Random(f'{phase}{n}')
      kind = SIGNALS[(phase + n) % len(SIGNALS)]
      asked = _Signal(text, rng.uniform(0, 0.4), kind)
      if machine in UNSEEN:
        delay = seconds * (phase + rng.random()) / len(PHASES)
        asked = _Signal('', delay, kind)
      yield (
        f'{_words(machine)}: {kind.name} in {name}, {asked.delay:.2f} s in',
        functools.partial(_signalled, runs, asked, machine),
      )
  for machine in (*SEEN, *UNSEEN):
    if 'unread' not in machine.values():
      name = f'{_words(machine)}: no signal'
      yield name, functools.partial(_unheard, runs, machine)


def _words(machine):
  return ', '.join(f'{key} {value}' for key, value in machine.items())


def _unheard(runs, machine, server, workdir) -> Defect:
  ended = runs.train(server, workdir, after='step 5/40', machine=machine)
  if defect := _failed(ended):
    return defect
  if ended.code:
    return 'lost', f'exit {ended.code}'
  return runs.ends_well(server, workdir)


def pairs(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Two signals, soon after one another and later, in each phase."""
  del seconds
  kinds = [(a, b, gap) for gap in GAPS for a in SIGNALS for b in SIGNALS]
  for number in range(count):
    first, second, gap = kinds[number % len(kinds)]
    phase, text = PHASES[number % len(PHASES)]
    machine = {'second': second, 'gap': gap}
    yield (
      f'{first.name}, {second.name} {gap} s later, in {phase}',
      functools.partial(_signalled, runs, _Signal(text, 0.1, first), machine),
    )


def clocks(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Clocks that jump by 400 days, forwards or back, at any moment."""
  for number in range(count):
    delay = random.Random(number).uniform(0, seconds)
    jump = (-1) ** number * 400 * DAY
    yield (
      f'a jump after {delay:.1f} s',
      functools.partial(_jumped, runs, delay, jump),
    )


def _jumped(runs, delay, jump, server, workdir) -> Defect:
  ended = runs.train(server, workdir, delay=delay, jump=jump)
  return (
    _failed(ended) or _unexplained(ended) or runs.ends_well(server, workdir)
  )


def disks(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Disks that fill at any point; then they have space."""
  del seconds
  largest = 1.5 * _size(runs.undisturbed)
  for number in range(count):
    size = int(largest * (number + 1) / count)
    yield (
      f'a disk of {size / 1024:,.0f} KiB',
      functools.partial(_filled, runs, size),
    )


def _filled(runs, size, server, workdir) -> Defect:
  with _disk(workdir, size):
    ended = runs.train(server, workdir / 'run')
    if defect := _failed(ended) or _unexplained(ended):
      return defect
    _mount(workdir, 256 * MEBIBYTES, 'remount')
    return runs.ends_well(server, workdir / 'run')


def results(runs: _Runs, seconds: float, count: int) -> Jobs:
  """Disks that fill under predictions, and under scores: half of them each."""
  del seconds
  run = given.classifier_of(runs.shared)
  rows = runs.shared.folder / 'rows.jsonl'
  rows.write_bytes(given.ROW * ROWS)
  for number in range(count):
    # 140 bytes of a predicted row; 300 kB of scores and pictures.
    size = (10 + 200 * (number // 2) // (count // 2)) * 1024
    if number % 2:
      name, job = f'scores, with {size / 1024:,.0f} KiB left', _scored
    else:
      name = f'predictions, on a disk of {size / 1024:,.0f} KiB'
      job = _predicted
    yield name, functools.partial(job, run, rows, size)


def _predicted(run, rows, size, server, folder) -> Defect:
  with _disk(folder, size):
    path = folder / 'out.jsonl'
    ended = server.run(
      'predict', [f'--workdir={run}', f'--input={rows}', f'--output={path}']
    )
    if defect := _failed(ended) or _unexplained(ended, FULL):
      return defect
    lines = path.read_text().splitlines()
  if not ended.code and len(lines) != ROWS:
    return 'silent', f'{len(lines)} of {ROWS} rows'
  for line in lines[:-1]:  # the disk may have been full within the last one
    json.loads(line)
  return None


def _scored(run, rows, size, server, folder) -> Defect:
  with _disk(folder, _pages(run) + size):
    copied = base.copy(run, folder)
    flags = [f'--workdir={copied}', f'--input={rows}', '--json']
    ended = server.run('evaluate', flags)
    if defect := _failed(ended) or _unexplained(ended, FULL):
      return defect
    _mount(folder, 64 * MEBIBYTES, 'remount')
    ended = server.run('evaluate', flags)
    if ended.code:
      return 'refused', ended.error
    return _failed(ended) or given.finite(folder, ended)


def _unexplained(ended, pattern='.') -> Defect:
  """A command that failed must say why, in a line with this pattern."""
  if ended.code and not re.search(pattern, ended.error):
    return 'misleading', ended.error or ended.err[-200:]
  return None


@contextlib.contextmanager
def _disk(folder, size) -> Iterator[None]:
  """Within, `folder` is a small disk; it is created if it is missing."""
  folder.mkdir(exist_ok=True)
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


GROUPS = {
  each.__name__: each
  for each in (kills, signals, outputs, pairs, clocks, disks, results)
}


def tried(group: str, count: int) -> measure.Values:
  """Runs `count` attempts of one of GROUPS, on all servers."""
  with commands.started() as (servers, shared):
    runs = _Runs(shared, servers[0])
    # Now with its programs.
    again = runs.train(servers[0], shared.folder / 'timed')
    jobs = [*GROUPS[group](runs, again.seconds, count)]
    return commands.run_jobs(jobs, servers, shared.folder)
