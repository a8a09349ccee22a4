"""The standard library of this Python, and of a fake one."""

import sysconfig

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import python_stdlib


def test_finds_the_library_and_splits_it():
  splits = python_stdlib.load(config.section('data'))
  names = {name: set(part.names) for name, part in splits.items()}
  everything = set().union(*names.values())
  assert {'json/decoder.py', 'argparse.py'} <= everything
  assert sum(map(len, names.values())) == len(everything) > 300
  assert 0.88 < len(names['train']) / len(everything) < 0.92
  assert not any('/test/' in f'/{name}' for name in everything)


def test_leaves_out_tests_packages_and_files_that_are_not_text(
  tmp_path, monkeypatch
):
  left_out = 'test', 'json/tests', 'site-packages/x', 'idlelib/idle_test'
  for folder in ('', 'json', *left_out):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / 'a.py').write_text('pass')
  (tmp_path / 'empty.py').write_text('')
  (tmp_path / 'latin.py').write_bytes(b'# \xe9')
  (tmp_path / 'notes.txt').write_text('notes')
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  splits = python_stdlib.load(config.section('data', splits=(100, 0, 0)))
  assert splits['train'].names == ('a.py', 'json/a.py')


@pytest.mark.parametrize('source', ('python_stdlib', 'digits', 'recall'))
def test_a_path_that_would_be_ignored_is_refused(source):
  for key in ('path', 'test_path'):
    with pytest.raises(
      errors.InputError, match=f"data.{key}='mine.txt': data.source='{source}'"
    ):
      config.parse({'data': {'source': source, key: 'mine.txt'}})


def test_a_python_without_sources_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  with pytest.raises(errors.InputError, match='no .py files'):
    python_stdlib.load(config.section('data'))
