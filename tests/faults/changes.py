"""Data that change under a run, and folders that two runs would share."""

import json
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

OTHER = 'data are not those|documents|data.json'


def data(shared: base.Base) -> Iterator[commands.Attempt]:
  """Resumes and evaluates with other data than the run began with."""
  for name, change in _changes().items():
    for launcher in ('train', 'evaluate'):
      for accepted in (False, True):
        yield commands.Attempt(
          f'{launcher} after {name}{", accepted" * accepted}',
          launcher,
          _changed(shared, change, launcher, accepted),
          expects='either' if accepted else 'refusal',
          says='' if accepted else OTHER,
          finding=4,
        )
  for name, flags in (
    ('held-out files that are those of training', _same),
    ('held-out files that are copies', _copies),
    ('a folder that links to itself', _loop),
  ):
    yield commands.Attempt(
      f'train on {name}',
      'train',
      _with_flags(shared, flags),
      expects='either' if flags is _loop else 'refusal',
      check=_read_once if flags is _loop else None,
      finding=4,
    )
  for name, change in (
    ('another config', lambda run: _set(run, 'model', 'width', 24)),
    (
      'a steps key that is a text',
      lambda run: _set(run, 'train', 'steps', 'x'),
    ),
  ):
    yield commands.Attempt(
      f'train with {name} in config.json',
      'train',
      _edited(shared, change),
      finding=5,
    )


def _changes() -> dict[str, Callable[[pathlib.Path], None]]:
  """What happens to a folder of texts, by name."""

  def first(folder):
    return sorted(folder.glob('*.txt'))[0]

  def same_size(folder):
    text = first(folder).read_text()
    first(folder).write_text(text[::-1])

  def one_byte(folder):
    text = first(folder).read_text()
    first(folder).write_text(text[:-1] + ('x' if text[-1] != 'x' else 'y'))

  def longer(folder):
    with first(folder).open('a') as file:
      file.write(' and more')

  def shorter(folder):
    first(folder).write_text(first(folder).read_text()[:20])

  def one_more(folder):
    (folder / '99.txt').write_text('a text that is new')

  def one_less(folder):
    first(folder).unlink()

  def renamed(folder):
    first(folder).rename(folder / '98.txt')

  def swapped(folder):
    a, b, *_ = sorted(folder.glob('*.txt'))
    texts = b.read_text(), a.read_text()
    a.write_text(texts[0])
    b.write_text(texts[1])

  def new_character(folder):
    text = first(folder).read_text()
    first(folder).write_text('é' + text[2:])

  def all_others(folder):
    base.write_text(folder, seed=1)

  return {
    'a text of the same size': same_size,
    'one byte': one_byte,
    'a longer text': longer,
    'a shorter text': shorter,
    'a text more': one_more,
    'a text less': one_less,
    'a renamed text': renamed,
    'two texts that changed places': swapped,
    'a new character': new_character,
    'all other texts': all_others,
  }


def _changed(shared, change, launcher, accepted):
  def arguments(folder):
    shutil.copytree(pathlib.Path(shared.text).parent, folder / 'text')
    run = shared.copy(folder)
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


def _with_flags(shared, flags):
  def arguments(folder):
    return [*shared.train(folder / 'run'), *flags(shared, folder)]

  return arguments


def _same(shared, folder):
  del folder
  return [f'--config.data.validation_path={shared.text}', _SPLITS]


def _copies(shared, folder):
  shutil.copytree(pathlib.Path(shared.text).parent, folder / 'copies')
  return [f'--config.data.validation_path={folder}/copies/*.txt', _SPLITS]


_SPLITS = '--config.data.splits=(90,0,10)'


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


def _edited(shared, change):
  def arguments(folder):
    run = shared.copy(folder)
    change(run)
    return shared.train(run)

  return arguments
