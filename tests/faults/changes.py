"""Data that change under a run, and folders that two runs would share."""

import json
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

OTHER = 'data are not those|documents|data.json'
SPLITS = '--config.data.splits=(90,0,10)'


def data(shared: base.Base) -> Iterator[commands.Attempt]:
  """Resumes and evaluates with other data than the run began with."""
  for name, change in CHANGES.items():
    for launcher in ('train', 'evaluate'):
      for accepted in (False, True):
        yield commands.Attempt(
          f'{launcher} after {name}{", accepted" * accepted}',
          launcher,
          _changed(shared, change, launcher, accepted),
          expects='either' if accepted else 'refusal',
          says='' if accepted else OTHER,
        )
  for name, flags, expects, check in (
    ('held-out files that are those of training', _same, 'refusal', None),
    ('held-out files that are copies', _copies, 'refusal', None),
    ('a folder that links to itself', _loop, 'either', _read_once),
  ):
    yield commands.Attempt(
      f'train on {name}',
      'train',
      lambda folder, flags=flags: [
        *shared.train(folder / 'run'),
        *flags(shared, folder),
      ],
      expects=expects,
      check=check,
    )
  for name, changed in (
    ('another config', ('model', 'width', 24)),
    ('a steps key that is a text', ('train', 'steps', 'x')),
  ):
    yield commands.Attempt(
      f'train with {name} in config.json',
      'train',
      base.changed(
        shared.run,
        lambda run, changed=changed: _set(run, *changed),
        shared.train,
      ),
    )


def _first(folder):
  return sorted(folder.glob('*.txt'))[0]


def _edited(edit):
  def change(folder):
    _first(folder).write_text(edit(_first(folder).read_text()))

  return change


def _swap(folder):
  a, b, *_ = sorted(folder.glob('*.txt'))
  texts = b.read_text(), a.read_text()
  a.write_text(texts[0])
  b.write_text(texts[1])


CHANGES: dict[str, Callable[[pathlib.Path], object]] = {  # of a folder of texts
  'a text of the same size': _edited(lambda text: text[::-1]),
  'one byte': _edited(lambda text: text[:-1] + 'xy'[text[-1] == 'x']),
  'a longer text': _edited(lambda text: text + ' and more'),
  'a shorter text': _edited(lambda text: text[:20]),
  'a text more': lambda x: (x / '99.txt').write_text('a text that is new'),
  'a text less': lambda folder: _first(folder).unlink(),
  'a renamed text': lambda folder: _first(folder).rename(folder / '98.txt'),
  'two texts that changed places': _swap,
  'a new character': _edited(lambda text: 'é' + text[2:]),
  'all other texts': lambda folder: base.write_text(folder, seed=1),
}


def _changed(shared, change, launcher, accepted):
  def arguments(folder):
    shutil.copytree(pathlib.Path(shared.text).parent, folder / 'text')
    run = base.copy(shared.run, folder)
    _set(run, 'data', 'path', str(folder / 'text' / '*.txt'))
    change(folder / 'text')
    flags = ['--accept_new_data'] if accepted else []
    if launcher == 'evaluate':
      return [f'--workdir={run}', *flags]
    path = f'--config.data.path={folder}/text/*.txt'
    return [*shared.train(run), path, *flags]

  return arguments


def _set(run, section, key, value):
  path = run / 'config.json'
  config = json.loads(path.read_text())
  config[section][key] = value
  path.write_text(json.dumps(config))


def _same(shared, folder):
  del folder
  return [f'--config.data.validation_path={shared.text}', SPLITS]


def _copies(shared, folder):
  shutil.copytree(pathlib.Path(shared.text).parent, folder / 'copies')
  return [f'--config.data.validation_path={folder}/copies/*.txt', SPLITS]


def _loop(shared, folder):
  shutil.copytree(pathlib.Path(shared.text).parent, folder / 'text')
  (folder / 'text' / 'again').symlink_to(folder / 'text')
  return [f'--config.data.path={folder}/text/**/*.txt']


def _read_once(folder, ended):
  """A file that several links name counts once."""
  del ended
  saved = json.loads(pathlib.Path(folder, 'run', 'data.json').read_text())
  documents = sum(split['documents'] for split in saved.values())
  files = len([*pathlib.Path(folder, 'text').glob('*.txt')])
  return None if documents <= files else ('silent', f'{documents} documents')
