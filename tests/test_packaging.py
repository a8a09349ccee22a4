"""Extras install by name; a build of a checkout holds commands and configs."""

import pathlib
import re
import tomllib

import pytest

FILES = (
  'rnn_jax/__init__.py',
  'launch/train.py',
  'configs/small.py',
  'configs/experiments/widths.py',
  'configs/notes.txt',
)


@pytest.fixture(name='command')
def _command(tmp_path, monkeypatch):
  """build_py of a checkout in the current folder."""
  setuptools = pytest.importorskip('setuptools')
  from rnn_jax import packaging

  monkeypatch.chdir(tmp_path)
  for name in FILES:
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_text(f'# {name}\n')
  command = packaging.BuildPy(
    setuptools.Distribution({'packages': ['rnn_jax'], 'script_name': ''})
  )
  command.build_lib = 'lib'
  command.ensure_finalized()
  return command


def built():
  return {str(x.relative_to('lib')) for x in pathlib.Path('lib').rglob('*.py')}


def test_a_wheel_holds_them_below_the_package(command):
  stale = pathlib.Path('lib/rnn_jax/commands/launch/gone.py')
  stale.parent.mkdir(parents=True)
  stale.touch()
  command.run()
  top = 'rnn_jax/commands'
  assert built() == {
    'rnn_jax/__init__.py',
    f'{top}/launch/train.py',
    f'{top}/configs/small.py',
    f'{top}/configs/experiments/widths.py',
  }
  copy = pathlib.Path('lib', top, 'launch/train.py')
  assert copy.read_text() == '# launch/train.py\n'


def test_an_editable_install_uses_the_checkout_s(command):
  command.editable_mode = True
  command.run()
  assert not any('commands' in name for name in built())


def test_a_source_distribution_holds_what_a_wheel_needs(command):
  files = {pathlib.PurePath(name).as_posix() for name in FILES}
  given = {
    pathlib.PurePath(name).as_posix() for name in command.get_source_files()
  }
  assert files - given == {'configs/notes.txt'}


def test_the_extras_that_the_makefile_installs_are_found_by_any_pip():
  root = pathlib.Path(__file__).parents[1]
  project = tomllib.loads((root / 'pyproject.toml').read_text())['project']
  extras = set(project['optional-dependencies'])
  # Pip 23 looks an extra up by its normalized name, "_" replaced by "-".
  assert not [name for name in extras if not re.fullmatch('[a-z0-9-]+', name)]
  (installed,) = re.findall(
    r'(test(?:\$\(comma\)[\w-]+)+)\)', (root / 'Makefile').read_text()
  )
  assert set(installed.split('$(comma)')) <= extras
