"""What `make release-check` refuses; distributions are made by that only."""

import itertools
import shutil
import subprocess
import zipfile

import pytest

import rnn_jax
from rnn_jax.native import prebuilt
from rnn_jax.native import wheel
from tests import release

OURS = rnn_jax.__version__
NAME = f'rnn_jax-{OURS}'


@pytest.fixture(name='root')
def _root(tmp_path):
  """A folder with the files of this checkout that name the version."""
  for name in ('CHANGELOG.md', 'CITATION.cff'):
    shutil.copy(release.ROOT / name, tmp_path)
  text = (tmp_path / 'CHANGELOG.md').read_text()
  head, _, rest = text.partition('## [Unreleased]\n')
  rest = rest[rest.index('## [') :]  # whatever is not released yet
  (tmp_path / 'CHANGELOG.md').write_text(f'{head}## [Unreleased]\n\n{rest}')
  return tmp_path


def edit(path, old, new):
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new, 1))


def test_this_version_is_in_all_files(root):
  assert not [*release.versions(root)]
  assert not [*release.kept_runs(release.ROOT)]


@pytest.mark.parametrize(
  ('file', 'old', 'new', 'problem'),
  (
    ('CHANGELOG.md', f'[{OURS}]', '[9.9.9]', f'releases 9.9.9, not {OURS}'),
    ('CHANGELOG.md', '[Unreleased]', '[Soon]', 'begins with [Soon]'),
    ('CHANGELOG.md', '[Unreleased]\n', '[Unreleased]\n\n- A\n', 'lines: - A'),
    ('CHANGELOG.md', f'[{OURS}] - ', f'[{OURS}] ', 'releases '),
    ('CITATION.cff', OURS, '9.9.9', f"lacks the line 'version: {OURS}'"),
    ('CITATION.cff', "'20", "'19", 'lacks the line "date-released'),
  ),
)
def test_a_file_of_another_version_is_named(root, file, old, new, problem):
  edit(root / file, old, new)
  assert any(problem in line for line in release.versions(root))


def test_missing_kept_runs_are_named_with_the_command(tmp_path):
  first, *_ = release.kept_runs(tmp_path)
  assert f'{OURS} lacks language_model: python -m tests.kept_runs' in first


def test_a_file_that_is_not_committed_is_named(tmp_path):
  subprocess.run(('git', 'init', '-q', tmp_path), check=True)
  assert not [*release.tree(tmp_path)]
  (tmp_path / 'new.py').touch()
  assert [*release.tree(tmp_path)] == ['not committed: new.py']


@pytest.fixture(name='files')
def _files():
  """The files of a wheel for Linux, which has all that it needs."""
  info = f'{NAME}.dist-info'
  levels = prebuilt.LEVELS['x86_64']
  names = itertools.chain(
    release.HOLDS,
    (f'{info}/{name}' for name in release.RECORDED),
    (f'rnn_jax/native/prebuilt/{level}.so' for level in levels),
  )
  return dict.fromkeys(names, b'')


def problems(files, folder):
  """What is wrong with a wheel of these files."""
  path = folder / f'{NAME}-py3-none-{wheel.TARGETS["linux-x86_64"].tag}.whl'
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in files.items():
      archive.writestr(name, content)
  return [*release.contents(path, release.ROOT)]


def test_a_wheel_with_all_files_is_right(files, tmp_path):
  assert not problems(files, tmp_path)
  for name in files:
    (problem,) = problems({x: files[x] for x in files if x != name}, tmp_path)
    assert problem.endswith(f'lacks {name}')


@pytest.mark.parametrize(
  ('name', 'content', 'problem'),
  (
    ('tests/conftest.py', b'', 'has tests'),
    ('rnn_jax/x.pyc', b'', 'has rnn_jax/x.pyc'),
    ('rnn_jax/x.so', str(release.ROOT).encode(), 'x.so has the folder'),
  ),
)
def test_what_a_wheel_must_not_have(files, tmp_path, name, content, problem):
  found = problems(files | {name: content}, tmp_path)
  assert any(problem in line for line in found)


def test_what_can_not_be_made_and_older_files_are_lines(tmp_path):
  (tmp_path / 'rnn_jax-0.0.1.tar.gz').touch()
  (tmp_path / f'{NAME}.tar.gz').touch()
  first, second = release.distributions(tmp_path, ['nowhere'])
  assert '--targets=nowhere: choose from linux-x86_64, ' in first
  assert 'rnn_jax-0.0.1.tar.gz is of another version' in second


def test_addresses_are_left_to_the_publisher(tmp_path):
  path = tmp_path / 'pyproject.toml'
  path.write_text('[project]\nname = "x"\n')
  (line,) = release.publisher(tmp_path)
  assert line.startswith('pyproject.toml has no [project.urls]: add Repository')
  path.write_text('[project.urls]\nRepository = "https://x.y"\n')
  assert not [*release.publisher(tmp_path)]


def test_a_check_is_a_line(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(release, 'publisher', lambda _: iter(['no address']))
  for name in ('tree', 'versions', 'kept_runs', 'distributions'):
    monkeypatch.setattr(release, name, lambda *_: iter(()))
  assert release.check(tmp_path, [])
  monkeypatch.setattr(release, 'tree', lambda _: iter(['not committed: x']))
  capsys.readouterr()
  assert not release.check(tmp_path, [])
  assert capsys.readouterr().out.splitlines() == [
    'FAIL tree',
    '     not committed: x',
    'ok   version',
    'ok   kept runs',
    'ok   distributions',
    'todo publisher',
    '     no address',
  ]
