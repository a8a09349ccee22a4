"""Names are UTF-8, and relative folders of XDG are ignored."""

import os
import sys

import pytest

from rnn_jax.native import cache as native_cache
from rnn_jax.system import compile_cache
from rnn_jax.system import environment


@pytest.fixture
def started(monkeypatch):
  """The commands that replace this process."""
  commands = []
  monkeypatch.setattr(os, 'execv', lambda *command: commands.append(command))
  monkeypatch.setenv(environment.MODE, '0')
  monkeypatch.setattr(sys, 'orig_argv', ['python', '-m', 'launch.x', '--a=b'])
  return commands


@pytest.mark.parametrize('name', ('ascii', 'ANSI_X3.4-1968'))
def test_ascii_names_start_python_again_in_utf8_mode(
  name, started, monkeypatch
):
  monkeypatch.setattr(sys, 'getfilesystemencoding', lambda: name)
  environment.normalize()
  again = [sys.executable, '-m', 'launch.x', '--a=b']
  assert started == [(sys.executable, again)]
  assert os.environ[environment.MODE] == '1'
  environment.normalize()  # Python ignored the variable: no second start
  assert len(started) == 1


@pytest.mark.parametrize('name', ('utf-8', 'iso-8859-1'))
def test_other_names_are_left(name, started, monkeypatch):
  monkeypatch.setattr(sys, 'getfilesystemencoding', lambda: name)
  environment.normalize()
  assert not started and os.environ[environment.MODE] == '0'


def test_relative_folders_are_ignored(monkeypatch, tmp_path):
  (tmp_path / 'home').mkdir()
  (tmp_path / 'current').mkdir()
  monkeypatch.chdir(tmp_path / 'current')
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  monkeypatch.delenv('RNN_JAX_CACHE', raising=False)
  monkeypatch.setenv('XDG_CACHE_HOME', 'made')
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path))
  home = tmp_path / 'home' / '.cache'
  assert environment.cache_home() == str(home)
  assert compile_cache.own_folder('1').startswith(str(home))
  assert native_cache.root() == home / 'rnn_jax'
  environment.normalize()
  assert 'XDG_CACHE_HOME' not in os.environ
  assert os.environ['XDG_CONFIG_HOME'] == str(tmp_path)
  assert not [*(tmp_path / 'current').iterdir()]


def test_without_a_home_there_is_no_cache(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
  monkeypatch.delenv('RNN_JAX_CACHE', raising=False)
  monkeypatch.setattr(os.path, 'expanduser', lambda path: path)
  assert environment.cache_home() == ''
  assert compile_cache.own_folder('1') == ''
  with pytest.raises(native_cache.UnavailableError, match='RNN_JAX_CACHE'):
    native_cache.root()
  assert not [*tmp_path.iterdir()]
