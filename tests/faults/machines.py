"""Commands on machines unlike ours, see machine.py.

What a command reports about its work may be lost, its work never. Where its
result is what it prints, a closed or full output is refused in a line, and a
reader that leaves ends it quietly.
"""

import json
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from tests.faults import base
from tests.faults import commands
from tests.faults import given

TEXT = 'caf\u00e9 \u2013 \U0001f600'  # in no 7 bits, and in no 16
CLOSED = dict.fromkeys(('stdin', 'stdout', 'stderr'), 'closed')
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


class _Command(NamedTuple):
  """A command that works on machines like ours.

  Attributes:
    launcher: of launch/.
    arguments: of a fresh folder, its arguments.
    prints: whether its result is what it prints.
  """

  launcher: str
  arguments: base.Arguments
  prints: bool = True

  def with_flags(self, *flags: str) -> '_Command':
    """Returns the command with more flags."""
    given = self.arguments
    return self._replace(arguments=lambda folder: [*given(folder), *flags])


def commands_on_them(shared: base.Base) -> Iterator[commands.Attempt]:
  """Each command on each machine."""
  made = _commands(shared)
  yield from _outputs(made)
  yield from _grids(shared)
  yield from _encodings(shared, made)
  yield from _limits(made)
  yield from _folders(shared, made)
  yield from _names(shared)


def _commands(shared) -> dict[str, _Command]:
  run = f'--workdir={shared.run}'
  classifier = f'--workdir={given.classifier_of(shared)}'
  rows = shared.folder / 'rows.jsonl'
  rows.write_text(json.dumps({'text': TEXT, 'label': 'good'}) + '\n')
  text = shared.folder / 'text.txt'
  text.write_text(TEXT * 20)
  programs = f'--compilation_cache={shared.folder / "programs"}'

  def fixed(launcher, *flags):
    return _Command(launcher, lambda folder: [*flags, programs])

  def writing(launcher, name, *flags):
    return _Command(
      launcher, lambda folder: [*flags, f'--output={folder / name}'], False
    )

  train = _Command('train', lambda folder: shared.train(folder / 'run'), False)
  predict = classifier, f'--input={rows}'
  return {
    'train': train,
    'train --print_config': train.with_flags('--print_config')._replace(
      prints=True
    ),
    'generate': fixed(
      'generate', run, f'--prompt={TEXT}', '--max_new_tokens=4', '--json'
    ),
    'score': fixed('score', run, f'--input={text}', '--json'),
    'evaluate': fixed('evaluate', run, '--json'),
    'predict': fixed('predict', *predict),
    'predict --output': writing('predict', 'out.jsonl', *predict, programs),
    'export': writing(
      'export', 'model.safetensors', run, '--format=safetensors'
    ),
  }


def _attempt(name, command, machine, says=None, **options):
  """What must work, and leave its files; or, with `says`, be refused."""
  if says is None:
    options = {'expects': 'success', 'check': _done} | options
  return commands.Attempt(
    name,
    command.launcher,
    command.arguments,
    machine=machine,
    says=says or '',
    **options,
  )


def _outputs(made):
  for name, command in made.items():
    for state in STATES:
      title, machine = f'{name}: stdout {state}', {'stdout': state}
      if not command.prints:
        yield _attempt(title, command, machine)
      elif state == 'gone':
        yield _attempt(title, command, machine, expects='quiet', check=None)
      else:
        yield _attempt(title, command, machine, REFUSED[state])
      yield _attempt(f'{name}: stderr {state}', command, {'stderr': state})
    yield _attempt(f'{name}: stdin closed', command, {'stdin': 'closed'})
    if not command.prints:
      yield _attempt(f'{name}: all closed', command, CLOSED)


def _grids(shared):
  """A grid of two runs whose reader leaves at its first line."""
  for machine in ({'stdout': 'gone'}, CLOSED):
    yield commands.Attempt(
      f'experiments: stdout {machine["stdout"]}',
      'experiments',
      lambda folder: [*shared.train(folder / 'grid'), '--seeds=0,1'],
      machine=machine,
      expects='success',
      check=_both_ran,
      timeout=4 * commands.TIMEOUT,
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
  inside = _Command('train', lambda f: shared.train(f / TEXT), False)
  made = made | {
    'train on it': made['train'].with_flags(*unicode),
    'train in it': inside.with_flags(*unicode),
  }
  for name, command in made.items():
    for encoding in ('ascii', 'latin-1', 'cp1252'):
      yield _attempt(
        f'{name}: an output of {encoding}', command, {'encoding': encoding}
      )
  for variables in (
    {'PYTHONIOENCODING': 'ascii'},
    {'LC_ALL': 'POSIX', 'PYTHONUTF8': '0'},
    {'LC_ALL': 'C', 'PYTHONCOERCECLOCALE': '0'},
  ):
    words = ' '.join(f'{key}={value}' for key, value in variables.items())
    for name in ('train in it', 'generate', 'score'):
      yield _attempt(
        f'{name}: {words}', made[name], {'fresh': True}, environment=variables
      )


def _limits(made):
  workers = made['train'].with_flags('--config.data.workers=2')
  chosen = {'train with workers': workers} | {
    name: made[name] for name in ('train', 'generate', 'predict', 'evaluate')
  }
  for most in LIMITS:
    for name, command in chosen.items():
      yield _attempt(
        f'{name}: {most} descriptors',
        command,
        {'files': most},
        LINES,
        expects='either',
        check=_done,
      )


def _folders(shared, made):
  deleted = {'folder': 'deleted'}
  for name, command in made.items():
    yield _attempt(
      f'{name}: in a deleted folder',
      command,
      deleted,
      'current folder',
      expects='either',
      check=_done,
    )
    yield _attempt(
      f'{name}: with modules in a deleted folder',
      command.with_flags('--modules=none_such'),
      deleted,
      'none_such|current folder',
    )
  current = shared.folder / 'current'
  current.mkdir(exist_ok=True)
  for name in ('train', 'generate', 'evaluate'):
    command = made[name]
    yield _attempt(
      f'{name}: a relative XDG_CACHE_HOME',
      command._replace(
        arguments=lambda folder, given=command.arguments: [
          x for x in given(folder) if '--compilation_cache' not in x
        ]
      ),
      {'folder': str(current)},
      environment=dict.fromkeys(('XDG_CACHE_HOME', 'XDG_CONFIG_HOME'), 'made'),
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
    refused = title.endswith(('pattern', 'backslash'))
    yield commands.Attempt(
      f'train: a folder named {title}',
      'train',
      lambda folder, name=name: shared.train(folder / name),
      expects='refusal' if refused else 'success',
      says='a folder with' if refused else '',
      check=lambda folder, ended, name=name: _trained(folder / name, ended),
    )
    for launcher, *flags in (
      ('generate', '--prompt=a', '--max_new_tokens=4'),
      ('evaluate', '--json'),
    ):
      yield commands.Attempt(
        f'{launcher}: a folder named {title}',
        launcher,
        _copied(shared, name, flags),
        expects='either' if refused else 'success',
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
