"""Extras install by name; a build of a checkout holds commands and configs.

The conda recipe and requirements.txt have the dependencies of pyproject.toml.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml
from packaging import requirements
from packaging import utils

import rnn_jax

ROOT = pathlib.Path(__file__).parents[2]
CONDA = {  # conda-forge's names, where they aren't PyPI's
  'flatbuffers': 'python-flatbuffers',
  'matplotlib': 'matplotlib-base',
}
FILES = (
  'rnn_jax/__init__.py',
  'launch/train.py',
  'configs/small.py',
  'configs/experiments/widths.py',
  'configs/samples/texts.csv',
  'configs/__init__.py',
  'configs/__pycache__/small.cpython-311.pyc',
  'configs/.small.py.swp',
)


@pytest.fixture(name='command')
def _command(tmp_path, monkeypatch):
  """build_py of a checkout in the current folder."""
  setuptools = pytest.importorskip('setuptools')
  from rnn_jax.system import packaging

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
  files = pathlib.Path('lib').rglob('*')
  return {str(x.relative_to('lib')) for x in files if x.is_file()}


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
    f'{top}/configs/samples/texts.csv',
    f'{top}/configs/__init__.py',
  }
  copy = pathlib.Path('lib', top, 'launch/train.py')
  assert copy.read_text() == '# launch/train.py\n'


def test_an_editable_install_uses_the_checkout_s(command):
  command.editable_mode = True
  command.run()
  assert not any('commands' in name for name in built())


@pytest.fixture(name='beside', scope='module')
def _beside(tmp_path_factory):
  """run(code) next to a clone that an editable install was made from."""
  pytest.importorskip('setuptools')
  parent = tmp_path_factory.mktemp('parent')
  clone, site = parent / 'rnn_jax', parent / 'site'
  package = clone / 'rnn_jax'
  package.mkdir(parents=True)
  for name in ('pyproject.toml', 'README.md', 'LICENSE'):
    shutil.copy(ROOT / name, clone)
  shutil.copytree(ROOT / 'rnn_jax' / 'system', package / 'system')
  for name in ('__init__.py', '__main__.py', 'version.py', 'errors.py'):
    shutil.copy(ROOT / 'rnn_jax' / name, package)
  backend = tomllib.loads((clone / 'pyproject.toml').read_text())
  build = f'import {backend["build-system"]["build-backend"]} as backend\n'
  build += f'print(backend.build_editable({str(parent)!r}))'
  env = os.environ | {'PYTHONPATH': str(clone)}

  def run(code, folder=parent, env=env | {'PYTHONPATH': str(site)}):
    return subprocess.run(
      [sys.executable, '-c', code],
      cwd=folder,
      env=env,
      text=True,
      check=False,
      capture_output=True,
    )

  built = run(build, clone, env)
  assert not built.returncode, built.stderr
  with zipfile.ZipFile(parent / built.stdout.split()[-1]) as wheel:
    wheel.extractall(site)
  return run


def test_a_script_next_to_the_clone_imports_the_checkout(beside):
  ended = beside(
    'import rnn_jax, importlib.util as util\n'
    'from rnn_jax import errors\n'
    'main = util.find_spec("rnn_jax.__main__")\n'
    'for path in (rnn_jax.__file__, errors.__file__, main.origin):\n'
    '  print(path)\n'
    'print(rnn_jax.__version__)'
  )
  assert not ended.stderr
  *paths, version = ended.stdout.split()
  assert [x.split('/parent')[1].partition('/')[2] for x in paths] == [
    'rnn_jax/rnn_jax/__init__.py',
    'rnn_jax/rnn_jax/errors.py',
    'rnn_jax/rnn_jax/__main__.py',
  ]
  assert version == rnn_jax.__version__


def test_the_editable_wheel_records_each_file(beside):
  ended = beside(
    'import importlib.metadata as metadata, base64, hashlib\n'
    'for file in metadata.files("rnn_jax"):\n'
    '  if file.hash:\n'
    '    digest = hashlib.sha256(file.locate().read_bytes()).digest()\n'
    '    value = base64.urlsafe_b64encode(digest).decode().rstrip("=")\n'
    '    assert value == file.hash.value, file\n'
    '  print(file)'
  )
  assert not ended.stderr
  names = {*ended.stdout.split()}
  assert 'rnn_jax/__init__.py' in names
  assert not [name for name in names if name.startswith('__editable__')]


def test_a_checkout_in_the_current_folder_comes_first(beside, tmp_path):
  other = tmp_path / 'rnn_jax/__init__.py'
  other.parent.mkdir()
  other.touch()
  ended = beside('import rnn_jax; print(rnn_jax.__file__)', tmp_path)
  assert ended.stdout.strip() == str(other)


def test_a_checkout_that_is_gone_is_an_error_with_a_remedy(beside):
  ended = beside(
    'import pathlib, shutil\n'
    'shutil.move("rnn_jax", "moved")\n'
    'try:\n'
    '  import rnn_jax\n'
    'finally:\n'
    '  shutil.move("moved", "rnn_jax")'
  )
  assert 'parent0/rnn_jax, which is gone: install it again' in ended.stderr


def test_a_source_distribution_holds_what_a_wheel_needs(command):
  files = {pathlib.PurePath(name).as_posix() for name in FILES}
  given = {
    pathlib.PurePath(name).as_posix() for name in command.get_source_files()
  }
  assert files - given == {*FILES[-2:]}


def test_the_extras_that_the_makefile_installs_are_found_by_any_pip():
  extras = set(project()['optional-dependencies'])
  # Pip 23 looks an extra up by its normalized name, "_" replaced by "-".
  assert not [name for name in extras if not re.fullmatch('[a-z0-9-]+', name)]
  installed = re.findall(
    r'(test(?:\$\(comma\)[\w-]+)+)\)', (ROOT / 'Makefile').read_text()
  )
  assert installed
  for names in installed:
    assert set(names.split('$(comma)')) <= extras


def project():
  """The table of that name in pyproject.toml."""
  return tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def ranges(lines, names=None):
  """{package: its range}, of requirements."""
  found = map(requirements.Requirement, lines)
  return {
    (names or {}).get(x.name, utils.canonicalize_name(x.name)): x.specifier
    for x in found
  }


def test_requirements_txt_has_the_dependencies():
  lines = (ROOT / 'requirements.txt').read_text().splitlines()
  given = [line for line in lines if line[:1] != '#']
  assert ranges(given) == ranges(project()['dependencies'])


def test_the_conda_recipe_has_version_script_and_dependencies():
  text = (ROOT / 'conda/recipe.yaml').read_text()
  recipe = yaml.safe_load(text)
  assert recipe['context']['version'] == rnn_jax.__version__
  about, build, needs = (
    recipe[key] for key in ('about', 'build', 'requirements')
  )
  own = project()
  assert about['summary'] == own['description']
  assert about['license'] == own['license']
  (script,) = (f'{x} = {y}' for x, y in own['scripts'].items())
  assert build['python']['entry_points'] == [script]
  python, *run = needs['run']
  assert python == f'python {own["requires-python"]}'
  assert ranges(run) == ranges(own['dependencies'], CONDA)
  (backend,) = tomllib.loads((ROOT / 'pyproject.toml').read_text())[
    'build-system'
  ]['requires']
  assert ranges([needs['host'][-1]]) == ranges([backend])
