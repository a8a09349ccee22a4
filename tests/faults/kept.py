"""Damage to each file of the kept corpus, see rnn_jax/data/store.

A run has token files. One of them, or their folder, is damaged; then the run is
evaluated, or the same training begins again. Either the numbers are those of
the undisturbed run, or a line refuses: never another number.
"""

import json
import os
import pathlib
import random
import shutil
from collections.abc import Callable
from collections.abc import Iterator

from tests.faults import base
from tests.faults import commands

SAYS = 'start again, which writes these files again|another user'
OTHER_USER = 54321
EVERY = 'test.text', 'test.ids'  # what evaluation reads: all kinds of damage
READ = (*EVERY, 'train.text', 'train.ids', 'test.ends', 'index.json')  # more


def corpus(shared: base.Base) -> Iterator[commands.Attempt]:
  """Damages token files, then trains or evaluates."""
  kept = _Kept(shared)
  for number, name in enumerate(kept.names()):
    file = name.rpartition('/')[2]
    many = len(KINDS) if file in EVERY else 9
    kinds = _some(number, many if file in READ else 2)
    for kind in kinds:
      yield kept.evaluated(f'{name}: {kind}', _of_file(name, kind))
    if file in READ:
      for kind in _some(number + 1, 4):
        yield kept.trained(f'{name}: {kind}', _of_file(name, kind))
    if file == 'train.text':
      for kind in _some(0, 4):
        damage = _of_file(name, kind)
        yield kept.evaluated(f'{name}, verified: {kind}', damage, '--verify')
  for name, damage in FOLDERS.items():
    yield kept.evaluated(f'the folder: {name}', damage)
    yield kept.trained(f'the folder: {name}', damage)


def _some(number, count):
  """Returns `count` of KINDS, evenly spread, others for another number."""
  kinds = [*KINDS]
  places = (number + n * len(kinds) // count for n in range(count))
  return [kinds[place % len(kinds)] for place in places]


class _Kept:
  """A run with token files, and its numbers."""

  def __init__(self, shared: base.Base) -> None:
    self._shared = shared
    self._folder = shared.folder / 'kept'
    self._cache = self._folder / 'cache'
    if not self._folder.exists():
      self._make(shared.server)
    self._losses = _losses(self._folder / 'run')
    ended = json.loads((self._folder / 'evaluated.json').read_text())
    self._loss = ended['loss']
    (self._store,) = (p for p in self._cache.iterdir() if p.is_dir())

  def names(self) -> list[str]:
    """Returns the files of the store, relative to it."""
    paths = [p for p in self._store.rglob('*') if p.is_file()]
    names = (str(path.relative_to(self._store)) for path in paths)
    return sorted(name for name in names if not name.endswith('.lock'))

  def evaluated(
    self, name: str, damage: Callable[[pathlib.Path], object], *flags: str
  ) -> commands.Attempt:
    """Returns the attempt to evaluate after a damage of the store."""

    def arguments(folder):
      cache = self._damaged(folder, damage)
      run = base.copy(self._folder / 'run', folder)
      config = json.loads((run / 'config.json').read_text())
      config['data']['cache'] = str(cache)
      (run / 'config.json').write_text(json.dumps(config))
      return self._evaluate(run, *flags)

    def check(folder, ended):
      del folder
      if ended.code:
        return None
      loss = json.loads(ended.out)['loss']
      return None if loss == self._loss else ('silent', f'loss {loss}')

    return self._attempt('evaluate', name, arguments, check)

  def trained(
    self, name: str, damage: Callable[[pathlib.Path], object]
  ) -> commands.Attempt:
    """Returns the attempt to train after a damage of the store."""

    def arguments(folder):
      return self._train(folder / 'run', self._damaged(folder, damage))

    def check(folder, ended):
      if ended.code:
        return None
      losses = _losses(folder / 'run')
      return None if losses == self._losses else ('silent', f'losses {losses}')

    return self._attempt('train', name, arguments, check)

  def _attempt(self, launcher, name, arguments, check):
    return commands.Attempt(
      f'{launcher}, {name}',
      launcher,
      arguments,
      expects='either',
      says=SAYS,
      check=check,
    )

  def _damaged(self, folder, damage):
    """Returns a copy of the cache in `folder` whose store is damaged."""
    cache = folder / 'cache'
    shutil.copytree(self._cache, cache)
    damage(cache / self._store.name)
    return cache

  def _train(self, run, cache):
    return self._shared.train(
      run,
      data__path=self._folder / 'text' / '*.txt',
      data__cache=cache,
      data__tokenizer='bpe',
      data__vocabulary=300,
      model__block='plain',  # compiles in half the time
      model__mlp_width=0,
      cell__preset='simple',
      train__steps=2,
      train__log_every=1,
      evaluate__every=0,
      sample__new_tokens=0,
    )

  def _evaluate(self, run, *flags):
    programs = f'--compilation_cache={self._shared.folder / "programs"}'
    return [f'--workdir={run}', '--split=test', '--json', programs, *flags]

  def _make(self, server):
    text = self._folder / 'text'
    text.mkdir(parents=True)
    rng = random.Random(0)
    for number in range(20):
      words = rng.choices(base.WORDS, k=400)
      (text / f'{number:02}.txt').write_text(' '.join(words))
    run = self._folder / 'run'
    trained = server.run('train', self._train(run, self._cache), timeout=300)
    evaluated = server.run('evaluate', self._evaluate(run), timeout=300)
    if trained.code or evaluated.code:
      raise RuntimeError(f'no run: {trained.err} {evaluated.err}')
    (self._folder / 'evaluated.json').write_text(evaluated.out)


def _losses(run):
  lines = (run / 'metrics.jsonl').read_text().splitlines()
  return [row['loss'] for row in map(json.loads, lines) if 'loss' in row]


def _of_file(name, kind):
  return lambda store: KINDS[kind](store / name)


def _written(change):
  """Returns a damage that changes the content."""

  def damage(path):
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content))

  return damage


def _flipped(part):
  def change(content):
    if content:
      content[int(part * (len(content) - 1))] ^= 0x10
    return content

  return _written(change)


def _zeroed(content):
  middle = len(content) // 2
  content[middle : middle + 4096] = bytes(len(content[middle : middle + 4096]))
  return content


def _instead(make):
  """Returns a damage that puts something else in the place of a file."""

  def damage(path):
    path.rename(f'{path}.away')
    make(path)

  return damage


KINDS: dict[str, Callable[[pathlib.Path], object]] = {
  'its first bit flipped': _flipped(0),
  'a bit of its middle flipped': _flipped(0.5),
  'its last bit flipped': _flipped(1),
  'a block of zeros': _written(_zeroed),
  'zeros': _written(lambda content: bytes(len(content))),
  'reversed': _written(lambda content: content[::-1]),
  'cut': _written(lambda content: content[: len(content) // 2]),
  'longer': _written(lambda content: content + b'\0' * 8),
  'empty': _written(lambda content: b''),
  'removed': pathlib.Path.unlink,
  'a folder': _instead(pathlib.Path.mkdir),
  'a link to itself': _instead(lambda path: path.symlink_to(path)),
  'a link to a copy': _instead(lambda path: path.symlink_to(f'{path}.away')),
  'a link to a device': _instead(lambda path: path.symlink_to('/dev/zero')),
  'a pipe': _instead(os.mkfifo),
  'of another user': lambda path: os.chown(path, OTHER_USER, OTHER_USER),
  'writable by others': lambda path: path.chmod(0o666),
  'of 3 GiB': lambda path: os.truncate(path, 3 * 2**30),
}


def _another(store):
  """Puts the whole store of other texts in this one's place."""
  _zero(store / 'train.text')
  index = json.loads((store / 'index.json').read_text())
  index['name'] = 'f' * 32
  (store / 'index.json').write_text(json.dumps(index))


def _zero(path):
  path.write_bytes(bytes(path.stat().st_size))


def _all_zeros(store):
  for path in store.rglob('*'):
    if path.is_file():
      _zero(path)


FOLDERS: dict[str, Callable[[pathlib.Path], object]] = {
  'removed': shutil.rmtree,
  'a file': _instead(lambda path: path.write_text('x')),
  'a link to a copy': _instead(lambda path: path.symlink_to(f'{path}.away')),
  'a pipe': _instead(os.mkfifo),
  'empty': _instead(pathlib.Path.mkdir),
  'of another user': lambda path: os.chown(path, OTHER_USER, OTHER_USER),
  'writable by others': lambda path: path.chmod(0o777),
  'of other texts': _another,
  'all zeros, as after a power cut': _all_zeros,
}
