"""Checks that this checkout can be released, and makes the distributions.

    make release-check

prints a line for each check, and exits with 1 if one fails:

    tree           all is committed
    version        rnn_jax/version.py, CHANGELOG.md and CITATION.cff agree
    kept runs      tests/kept_runs has a run of each kind of this version
    distributions  dist/ has the source distribution and wheels of the targets,
                   made now; twine takes them
    contents       of wheels: types, licence, commands, C++; neither tests nor
                   folders of this machine
    command        `rnn-jax --version` of an installed wheel
    publisher      what only who publishes it knows: the project's addresses.
                   "todo" and not a failure, as they may be unknown

docs/contributing.md says what comes before and after.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from collections.abc import Iterator

from packaging import tags
from packaging import utils

from rnn_jax import version
from rnn_jax.native import prebuilt
from rnn_jax.native import wheel
from tests.kept_runs import kinds
from tests.kept_runs import make

ROOT = pathlib.Path(__file__).parents[1]
RELEASED = re.compile(r'^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$', re.M)
PACKAGE = 'rnn_jax'
HOLDS = (  # what each wheel has
  f'{PACKAGE}/py.typed',
  f'{PACKAGE}/commands/launch/train.py',
  f'{PACKAGE}/commands/configs/stdlib_bytes.py',
  f'{PACKAGE}/native/gla.cc',
  f'{PACKAGE}/serving/page/index.html',
)
RECORDED = 'licenses/LICENSE', 'entry_points.txt', 'METADATA'

Problems = Iterator[str]  # of a check: none if it holds


def tree(root: pathlib.Path) -> Problems:
  """Yields the files that aren't committed."""
  git = ('git', '-C', str(root), 'status', '--porcelain')
  listed = subprocess.run(git, capture_output=True, text=True, check=True)
  for line in listed.stdout.splitlines():
    yield f'not committed: {line[3:]}'


def versions(root: pathlib.Path) -> Problems:
  """Yields what differs from rnn_jax/version.py."""
  ours = version.__version__
  text = (root / 'CHANGELOG.md').read_text(encoding='utf-8')
  (first, _), *rest = RELEASED.findall(text) or [('nothing', '')]
  if first != 'Unreleased':
    yield f'CHANGELOG.md begins with [{first}], not [Unreleased]'
  between = text.partition('[Unreleased]\n')[2].partition('\n## ')[0].strip()
  if between:
    yield f'CHANGELOG.md has [Unreleased] lines: {between.splitlines()[0]}'
  newest, date = rest[0] if rest else ('nothing', '')
  if newest != ours:
    yield f'CHANGELOG.md releases {newest}, not {ours}'
  if not date:
    yield f'CHANGELOG.md has no date of {newest}'
  cited = (root / 'CITATION.cff').read_text(encoding='utf-8').splitlines()
  for line in (f'version: {ours}', f"date-released: '{date}'"):
    if line not in cited:
      yield f'CITATION.cff lacks the line {line!r}'


def kept_runs(root: pathlib.Path) -> Problems:
  """Yields the kinds of runs that this version lacks."""
  folder = root / 'tests/kept_runs' / version.__version__
  path = folder / make.ANSWERS
  have = json.loads(path.read_text()) if path.exists() else {}
  for kind in kinds.KINDS:
    if kind not in have or not (folder / kind / 'config.json').exists():
      yield f'{folder} lacks {kind}: python -m tests.kept_runs.make'


def contents(path: pathlib.Path, root: pathlib.Path) -> Problems:
  """Yields what is wrong with the files of a wheel."""
  info = f'{PACKAGE}-{version.__version__}.dist-info'
  with zipfile.ZipFile(path) as archive:
    files = {name: archive.read(name) for name in archive.namelist()}
  for name in (*HOLDS, *(f'{info}/{each}' for each in RECORDED)):
    if name not in files:
      yield f'{path.name} lacks {name}'
  tops = {name.partition('/')[0] for name in files} - {PACKAGE, info}
  if tops:
    yield f'{path.name} has {", ".join(sorted(tops))}'
  for target in wheel.TARGETS.values():
    for level in prebuilt.LEVELS[target.machine]:
      name = f'{PACKAGE}/native/prebuilt/{level}.so'
      if target.tag in path.name and name not in files:
        yield f'{path.name} lacks {name}'
  folders = [str(x).encode() for x in (root, pathlib.Path.home())]
  for name, content in files.items():
    if 'tests' in name.split('/') or name.endswith('.pyc'):
      yield f'{path.name} has {name}'
    yield from (
      f'{path.name}: {name} has the folder {folder.decode()}'
      for folder in folders
      if folder in content
    )


def command(path: pathlib.Path) -> Problems:
  """Yields how `rnn-jax --version` of a wheel fails.

  Its environment is a new one, which finds dependencies in this one.
  """
  with tempfile.TemporaryDirectory() as name:
    _python('-m', 'venv', '--without-pip', name)
    python = pathlib.Path(name, 'bin/python')
    _python('-m', 'pip', '--python', python, 'install', '--no-deps', path)
    (site,) = pathlib.Path(name).glob('lib/*/site-packages')
    (site / 'dependencies.pth').write_text(sysconfig.get_path('purelib'))
    run = (python.with_name('rnn-jax'), '--version')
    shown = subprocess.run(
      run, env=_environment(), capture_output=True, text=True, check=False
    )
  if shown.stdout != f'rnn-jax {version.__version__}\n':
    yield f'rnn-jax --version prints {shown.stdout + shown.stderr!r}'


def publisher(root: pathlib.Path) -> Problems:
  """Yields what the publisher fills in."""
  about = tomllib.loads((root / 'pyproject.toml').read_text(encoding='utf-8'))
  if not about['project'].get('urls'):
    yield (
      'pyproject.toml has no [project.urls]: add Repository, Documentation and '
      'Issues, then build again'
    )


def check(folder: pathlib.Path, targets: list[str]) -> bool:
  """Prints a line for each check. Returns whether all hold.

  Args:
    folder: of the distributions, which are made.
    targets: of wheels, names in wheel.TARGETS.
  """
  made = f'{PACKAGE}-{version.__version__}'
  holds = all(
    [
      _holds('tree', tree, ROOT),
      _holds('version', versions, ROOT),
      _holds('kept runs', kept_runs, ROOT),
      _holds('distributions', distributions, folder, targets),
      *(
        _holds(f'contents of {path.name}', contents, path, ROOT)
        for path in sorted(folder.glob(f'{made}-*.whl'))
      ),
      *(
        _holds('command', command, path)
        for path in sorted(folder.glob(f'{made}-*.whl'))
        if _runs_here(path)
      ),
    ]
  )
  _holds('publisher', publisher, ROOT, fails='todo')
  return holds


def distributions(folder: pathlib.Path, targets: list[str]) -> Problems:
  """Makes the distributions. Yields why it can't, and what others there are."""
  command = (
    *(sys.executable, '-m', 'rnn_jax.native.wheel', str(folder.absolute())),
    f'--targets={",".join(targets)}',
  )
  ended = subprocess.run(
    command, cwd=ROOT, capture_output=True, text=True, check=False
  )
  if ended.returncode:
    yield (ended.stderr.strip().splitlines() or ['it fails'])[-1]
  made = f'{PACKAGE}-{version.__version__}'
  for path in folder.glob('*'):
    if not path.name.startswith((f'{made}-', f'{made}.')):
      yield f'{path} is of another version: remove it'


def _runs_here(path):
  return not utils.parse_wheel_filename(path.name)[3].isdisjoint(
    tags.sys_tags()
  )


def _holds(
  name: str,
  probe: Callable[..., Problems],
  *given: object,
  fails: str = 'FAIL',
) -> bool:
  problems = [*probe(*given)]
  print(f'{fails if problems else "ok":5}{name}', flush=True)
  for problem in problems:
    print(f'     {problem}')
  return not problems


def _python(*arguments):
  command = (sys.executable, *map(str, arguments))
  subprocess.run(command, env=_environment(), check=True, capture_output=True)


def _environment():
  """That of this process, without the checkout's folder."""
  return {x: y for x, y in os.environ.items() if x != 'PYTHONPATH'}


if __name__ == '__main__':
  parser = argparse.ArgumentParser(description='Checks a release.')
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('--targets', default=','.join(wheel.TARGETS))
  asked = parser.parse_args()
  sys.exit(not check(asked.folder, asked.targets.split(',')))
