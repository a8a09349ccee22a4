"""`rnn-jax`: the list of commands, and how it starts one."""

import os
import pathlib
import subprocess
import sys

import pytest

import rnn_jax
from rnn_jax import command_line
from rnn_jax.system import shipped

ROOT = pathlib.Path(rnn_jax.__file__).parents[1]


def test_each_command_is_listed_once_under_its_purpose(capsys):
  assert command_line.main([]) == 0
  out = capsys.readouterr().out
  lines = out.splitlines()
  names = {command.name for command in command_line.commands()}
  assert {'train', 'generate', 'prepare', 'profile', 'export'} <= names
  assert not names & {'command', 'hosts', 'usage'}
  for name in names:
    assert sum(line.startswith(f'  {name} ') for line in lines) == 1
  order = [lines.index(purpose) for purpose in command_line.PURPOSES[:-1]]
  assert order == sorted(order)
  assert 'Other' not in lines
  assert max(map(len, lines)) <= 80
  for name in shipped.names():
    assert name in out


def test_the_summary_is_the_docstring_s_first_paragraph():
  train = next(x for x in command_line.commands() if x.name == 'train')
  assert train == ('train', 'Train', 'Trains a model, or resumes its training.')


@pytest.mark.parametrize(
  ('given', 'remedy'),
  (
    ('trian', "did you mean 'train'?"),
    ('find-batch-sise', "did you mean 'find_batch_size'?"),
    ('command', ''),
    ('../train', 'did you mean'),
    ('xyz', 'see rnn-jax --help'),
  ),
)
def test_an_unknown_command_is_one_line(capsys, given, remedy):
  assert command_line.main([given]) == 1
  out, err = capsys.readouterr()
  assert out == ''
  assert err.startswith(f'error: unknown command {given!r}: {remedy}')
  assert err.count('\n') == 1


def test_the_version_is_the_package_s(capsys):
  assert command_line.main(['--version']) == 0
  assert capsys.readouterr().out == f'rnn-jax {rnn_jax.__version__}\n'


def test_a_user_s_own_folders_hide_none_of_ours(tmp_path):
  for name in ('launch', 'configs'):
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text('raise SystemExit(3)\n')
  result = subprocess.run(
    [sys.executable, '-m', 'rnn_jax', 'find-batch-size', '--help'],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert '\n    rnn-jax find_batch_size --config=published' in result.stdout
  assert 'launch.' not in result.stdout


def test_commands_are_named_as_they_were_typed(monkeypatch):
  text = 'see launch.train --help, python -m launch.train, launch/train.py'
  assert command_line.as_typed(text) == text
  main = sys.modules['__main__']
  monkeypatch.setattr(main, 'STARTED_BY_RNN_JAX', True, raising=False)
  typed = 'see rnn-jax train --help, rnn-jax train, launch/train.py'
  assert command_line.as_typed(text) == typed
  assert command_line.as_typed('launch.trains') == 'launch.trains'
