"""What the attempts share: a small text, a config, and a trained run."""

import dataclasses
import json
import pathlib
import random
import shutil
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

WORDS = ('the', 'state', 'gate', 'forgets', 'reads', 'writes', 'a', 'key')
SMALL = {
  'data.source': 'text',
  'data.splits': (70, 20, 10),
  'data.length': 32,
  'data.batch_size': 8,
  'data.workers': 0,
  'model.width': 16,
  'model.mlp_width': 16,
  'cell.heads': 2,
  'cell.key_width': 4,
  'cell.value_width': 4,
  'train.steps': 4,
  'train.log_every': 2,
  'train.checkpoint_every': 2,
  'schedule.warmup_steps': 2,
  'evaluate.every': 4,
  'evaluate.batch_size': 8,
  'sample.new_tokens': 4,
}
CONFIG = '''"""A model that trains in a second."""

from rnn_jax import config as config_lib


def get_config():
  config = config_lib.default()
  config_lib.override(config, {overrides!r})
  return config
'''


# Of a fresh folder of an attempt, the arguments of its command.
Arguments = Callable[[pathlib.Path], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Base:
  """Files that attempts copy or read, never change.

  Attributes:
    folder: of all.
    text: glob of a small text.
    config: a config file of a small model on it.
    run: work folder of a run of that.
    canary: a file that code of a stranger would write.
    server: starts commands quickly, see commands.Server.
  """

  folder: pathlib.Path
  text: str
  config: pathlib.Path
  run: pathlib.Path
  canary: pathlib.Path
  server: Any = None

  @classmethod
  def make(cls, folder: pathlib.Path, server: Any) -> 'Base':
    """Writes the files and trains the run.

    Raises:
      RuntimeError: the run failed.
    """
    text = write_text(folder / 'text')
    config = folder / 'config.py'
    config.write_text(CONFIG.format(overrides=SMALL | {'data.path': text}))
    run, canary = folder / 'run', folder / 'canary'
    shared = cls(folder, text, config, run, canary, server)
    ended = server.run('train', shared.train(shared.run), timeout=300)
    if ended.code:
      raise RuntimeError(f'the run that all share failed: {ended.err}')
    return shared

  def train(self, workdir: pathlib.Path, **overrides: Any) -> list[str]:
    """Returns the arguments of launch.train; '__' in a key is a point."""
    flags = {k.replace('__', '.'): v for k, v in overrides.items()}
    return [
      f'--config={self.config}',
      f'--workdir={workdir}',
      f'--compilation_cache={self.folder / "programs"}',
      *(f'--config.{key}={value}' for key, value in flags.items()),
    ]

  def config_of_run(self) -> dict[str, Any]:
    """Returns the run's config.json."""
    return json.loads((self.run / 'config.json').read_text())


def copy(run: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Returns a copy of a run, in `folder`."""
  return pathlib.Path(shutil.copytree(run, folder / 'run'))


def changed(
  run: pathlib.Path,
  change: Callable[[pathlib.Path], object],
  then: Callable[[pathlib.Path], Sequence[str]],
) -> Arguments:
  """Returns what makes the arguments `then` of a changed copy of a run."""

  def arguments(folder):
    copied = copy(run, folder)
    change(copied)
    return then(copied)

  return arguments


def opened(*flags: str) -> Callable[[pathlib.Path], list[str]]:
  """Returns what makes the arguments to use a run as it is."""
  return lambda run: [f'--workdir={run}', *flags]


def file(
  name: str, content: bytes | Callable[[], bytes]
) -> Callable[[pathlib.Path], pathlib.Path]:
  """Returns what writes a file into a folder, and returns its path."""

  def write(folder):
    path = folder / name
    path.write_bytes(content() if callable(content) else content)
    return path

  return write


def prepare(folder: pathlib.Path, path: pathlib.Path, *flags: str) -> list[str]:
  """Returns the arguments of launch.prepare for a file."""
  return [
    '--name=theirs',
    f'--data_dir={folder / "data"}',
    f'--input={path}',
    '--splits=60,20,20',
    *flags,
  ]


def convert(folder: pathlib.Path, path: pathlib.Path, form: str) -> list[str]:
  """Returns the arguments of launch.convert for a model of that format."""
  return [f'--input={path}', f'--format={form}', f'--workdir={folder / "run"}']


def write_text(folder: pathlib.Path, files: int = 12, seed: int = 0) -> str:
  """Writes text files of different lengths. Returns their glob."""
  rng = random.Random(seed)
  folder.mkdir(exist_ok=True)
  for number in range(files):
    words = rng.choices(WORDS, k=rng.randint(20, 60))
    (folder / f'{number:02}.txt').write_text(' '.join(words))
  return str(folder / '*.txt')


def remove(folder: pathlib.Path) -> None:
  """Removes a folder, whatever its permissions are."""
  shutil.rmtree(folder, ignore_errors=True)
