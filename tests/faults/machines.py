"""Commands on machines unlike ours, see machine.py.

What a command reports about its work may be lost, its work never. Where its
result is what it prints, a closed or full output is refused in a line, and a
reader that leaves ends it quietly.
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from tests.faults import base
from tests.faults import commands
from tests.faults import given

TEXT = 'caf\u00e9 \u2013 \U0001f600'  # in no 7 bits, and in no 16
TIMEOUT = 60.0  # seconds: what is well compiles programs
STATES = ('closed', 'full', 'gone')
REFUSED = {'closed': 'standard output is closed', 'full': 'No space left'}
LIMITS = (20, 24, 28, 32, 64)  # descriptors
LINES = (  # what says that there are too few
  'ulimit|Too many open files|descriptor|cannot be opened|can.t be'
)
NAMES = {
  'an emoji': '\U0001f600',
  'an accent': 'caf\u00e9',
  'an accent of two characters': 'cafe\u0301',
  'from right to left': '\u05e9\u05dc\u05d5\u05dd',
  'spaces': ' a  b ',
  'a line': 'a\nb',
  'a tab': 'a\tb',
  'quotes': 'a"b\'c`d',
  'a pattern': 'a*b',  # refused: checkpoints couldn't be read again
  'another pattern': '[b]{c,d}?',
  'a format': '%s{0}{x}$HOME',
  'a home': '~',
  'a dash': '-x',
  'points': 'a..b.',
  'a hash': 'a#b=c&d',
  'a comma and a colon': 'a,b:c;d',
  'a backslash': 'a\\nb',  # refused, too
  'a percent': 'a%20b%',
  '200 characters': 'x' * 200,
}


@dataclasses.dataclass(frozen=True)
class _Command:
  """A command that works on machines like ours.

  Attributes:
    launcher: of launch/.
    arguments: of a fresh folder, its arguments.
    prints: whether its result is what it prints.
  """

  launcher: str
  arguments: Callable[[pathlib.Path], list[Any]]
  prints: bool = True


def commands_on_them(shared: base.Base) -> Iterator[commands.Attempt]:
  """Each command on each machine."""
  made = _commands(shared)
  yield from _outputs(made)
  yield from _grids(shared)
  yield from _encodings(shared, made)
  yield from _limits(shared, made)
  yield from _folders(shared, made)
  yield from _names(shared)


def _commands(shared) -> dict[str, _Command]:
  run = shared.run
  classifier = given.classifier_of(shared)
  rows = shared.folder / 'rows.jsonl'
  rows.write_text(json.dumps({'text': TEXT, 'label': 'good'}) + '\n')
  text = shared.folder / 'text.txt'
  text.write_text(TEXT * 20)
  programs = f'--compilation_cache={shared.folder / "programs"}'
  train = shared.train
  return {
    'train': _Command('train', lambda f: train(f / 'run'), False),
    'train --print_config': _Command(
      'train', lambda f: [*train(f / 'run'), '--print_config']
    ),
    'generate': _Command(
      'generate',
      lambda f: [
        *(f'--workdir={run}', f'--prompt={TEXT}', '--max_new_tokens=4'),
        *('--json', programs),
      ],
    ),
    'score': _Command(
      'score',
      lambda f: [f'--workdir={run}', f'--input={text}', '--json', programs],
    ),
    'evaluate': _Command(
      'evaluate', lambda f: [f'--workdir={run}', '--json', programs]
    ),
    'predict': _Command(
      'predict',
      lambda f: [f'--workdir={classifier}', f'--input={rows}', programs],
    ),
    'predict --output': _Command(
      'predict',
      lambda f: [
        *(f'--workdir={classifier}', f'--input={rows}', programs),
        f'--output={f / "out.jsonl"}',
      ],
      False,
    ),
    'export': _Command(
      'export',
      lambda f: [
        *(f'--workdir={run}', '--format=safetensors'),
        f'--output={f / "model.safetensors"}',
      ],
      False,
    ),
  }


def _attempt(name, command, machine, **options):
  return commands.Attempt(
    name,
    command.launcher,
    command.arguments,
    machine=machine,
    timeout=TIMEOUT,
    **options,
  )


def _outputs(made):
  for name, command in made.items():
    for state in STATES:
      options = {'expects': 'success', 'check': _done}
      if command.prints and state == 'gone':
        options = {'expects': 'quiet'}
      elif command.prints:
        options = {'says': REFUSED[state]}
      yield _attempt(
        f'{name}: stdout {state}', command, {'stdout': state}, **options
      )
      yield _attempt(
        f'{name}: stderr {state}',
        command,
        {'stderr': state},
        expects='success',
        check=_done,
      )
    yield _attempt(
      f'{name}: stdin closed',
      command,
      {'stdin': 'closed'},
      expects='success',
      check=_done,
    )
    if not command.prints:
      yield _attempt(
        f'{name}: all closed',
        command,
        {'stdin': 'closed', 'stdout': 'closed', 'stderr': 'closed'},
        expects='success',
        check=_done,
      )


def _grids(shared):
  """A grid of two runs whose reader leaves at its first line."""
  for machine in (
    {'stdout': 'gone'},
    {'stdin': 'closed', 'stdout': 'closed', 'stderr': 'closed'},
  ):
    yield commands.Attempt(
      f'experiments: stdout {machine["stdout"]}',
      'experiments',
      lambda folder: [*shared.train(folder / 'grid'), '--seeds=0,1'],
      machine=machine,
      expects='success',
      check=_both_ran,
      timeout=4 * TIMEOUT,
    )


def _both_ran(folder, ended):
  del ended
  lines = (folder / 'grid' / 'runs.jsonl').read_text().splitlines()
  done = [row['seed'] for row in map(json.loads, lines) if not row['error']]
  return None if done == [0, 1] else ('lost', f'the runs of seeds {done} ended')


def _done(folder, ended):
  """Checks that the files of a command that succeeded are there."""
  if ended.code:
    return None
  for path in (folder / 'run' / 'checkpoints', *folder.glob('*.*')):
    if path.is_file() and not path.stat().st_size:
      return 'lost', f'{path.name} is empty'
  trained = folder / 'run' / 'config.json'
  if trained.exists() and not (folder / 'run' / 'checkpoints' / '4').exists():
    return 'lost', 'no checkpoint of the last step'
  return _values(folder, ended)


def _values(folder, ended):
  """Checks that lines of JSON are, and have the text that was given."""
  del folder
  for line in ended.out.splitlines():
    if not line.startswith('{"'):
      continue
    try:
      row = json.loads(line)
    except ValueError as error:
      return 'silent', f'{error}: {line[:100]}'
    if row.get('prompt', TEXT) != TEXT:
      return 'silent', f'the prompt is {row["prompt"]!r}'
  return None


def _encodings(shared, made):
  text = shared.folder / 'unicode.txt'
  text.write_text(f'{TEXT} the gate reads ' * 200)
  unicode = [f'--config.data.path={text}', '--config.data.split_by=position']
  made = made | {
    'train on it': _Command(
      'train', lambda f: [*shared.train(f / 'run'), *unicode], False
    ),
    'train in it': _Command(
      'train', lambda f: [*shared.train(f / TEXT), *unicode], False
    ),
  }
  for name, command in made.items():
    for encoding in ('ascii', 'latin-1', 'cp1252'):
      yield _attempt(
        f'{name}: an output of {encoding}',
        command,
        {'encoding': encoding},
        expects='success',
        check=_done,
      )
  for variables in (
    {'PYTHONIOENCODING': 'ascii'},
    {'LC_ALL': 'POSIX', 'PYTHONUTF8': '0'},
    {'LC_ALL': 'C', 'PYTHONCOERCECLOCALE': '0'},
  ):
    for name in ('train in it', 'generate', 'score'):
      words = ' '.join(f'{key}={value}' for key, value in variables.items())
      yield _attempt(
        f'{name}: {words}',
        made[name],
        {'fresh': True},
        environment=variables,
        expects='success',
        check=_done,
      )


def _limits(shared, made):
  workers = _Command(
    'train',
    lambda f: [*shared.train(f / 'run'), '--config.data.workers=2'],
    False,
  )
  chosen = {'train with workers': workers} | {
    name: made[name] for name in ('train', 'generate', 'predict', 'evaluate')
  }
  for most in LIMITS:
    for name, command in chosen.items():
      yield _attempt(
        f'{name}: {most} descriptors',
        command,
        {'files': most},
        expects='either',
        says=LINES,
        check=_done,
      )


def _folders(shared, made):
  for name, command in made.items():
    yield _attempt(
      f'{name}: in a deleted folder',
      command,
      {'folder': 'deleted'},
      expects='either',
      says='current folder',
      check=_done,
    )
    yield _attempt(
      f'{name}: with modules in a deleted folder',
      dataclasses.replace(
        command,
        arguments=lambda f, given=command.arguments: [
          *given(f),
          '--modules=none_such',
        ],
      ),
      {'folder': 'deleted'},
      says='none_such|current folder',
    )
  current = shared.folder / 'current'
  current.mkdir(exist_ok=True)
  relative = {f'XDG_{kind}_HOME': 'made' for kind in ('CACHE', 'CONFIG')}
  for name in ('train', 'generate', 'evaluate'):
    command = made[name]
    yield _attempt(
      f'{name}: a relative XDG_CACHE_HOME',
      dataclasses.replace(
        command,
        arguments=lambda f, given=command.arguments: [
          each for each in given(f) if '--compilation_cache' not in each
        ],
      ),
      {'folder': str(current)},
      environment=relative,
      expects='success',
      check=lambda folder, ended: (
        _nothing_made(current) or _done(folder, ended)
      ),
    )


def _nothing_made(current):
  made = [path.name for path in current.iterdir()]
  return (
    ('silent', f'{made[0]!r} was made in the current folder') if made else None
  )


def _names(shared):
  for title, name in NAMES.items():
    yield commands.Attempt(
      f'train: a folder named {title}',
      'train',
      lambda folder, name=name: shared.train(folder / name),
      expects='refusal' if title.endswith('pattern') else 'success',
      says='a folder with' if title.endswith('pattern') else '',
      check=lambda folder, ended, name=name: _trained(folder / name, ended),
      timeout=TIMEOUT,
    )
    for launcher, arguments in (
      ('generate', ['--prompt=a', '--max_new_tokens=4']),
      ('evaluate', ['--json']),
    ):
      yield commands.Attempt(
        f'{launcher}: a folder named {title}',
        launcher,
        _copied(shared, name, arguments),
        expects='either' if title.endswith('pattern') else 'success',
        timeout=TIMEOUT,
      )


def _copied(shared, name, arguments):
  def make(folder):
    shutil.copytree(shared.run, folder / name)
    programs = f'--compilation_cache={shared.folder / "programs"}'
    return [f'--workdir={folder / name}', programs, *arguments]

  return make


def _trained(run, ended):
  if ended.code or (run / 'checkpoints' / '4' / 'SHA256SUMS').exists():
    return None
  return 'lost', 'no checkpoint of the last step in the folder of that name'
