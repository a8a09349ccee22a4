"""Errors of a command: one line, an exit code, no traceback."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
from absl.testing import flagsaver

from launch import command
from rnn_jax import command_line
from rnn_jax import errors
from tests.support import launchers
from tests.support import tiny

ROOT = pathlib.Path(__file__).parents[2]
LAUNCHER = """
'''Says something.

  python -m launch.something --config=FILE
'''
from absl import flags
from ml_collections import config_flags
from launch import command

CONFIG = config_flags.DEFINE_config_file('config')
flags.DEFINE_string('say', None, 'What.', required=True)


def main(_):
  import logging
  import os
  from absl import logging as absl_logging
  import jax
  from rnn_jax import errors
  from rnn_jax.system import streams

  logging.getLogger('chatty').info('clutter')
  absl_logging.info('clutter')
  absl_logging.warning('heed this')
  match flags.FLAGS.say:
    case 'input':
      raise errors.InputError('x=3: give 4')
    case 'interrupt':
      raise KeyboardInterrupt
    case 'bug':
      raise RuntimeError('a bug')
    case 'transfer':
      jax.numpy.sin(1.0)
    case 'cpus':
      jax.device_put(1).block_until_ready()
      threads = {
        frozenset(os.sched_getaffinity(int(thread)))
        for thread in os.listdir('/proc/self/task')
      }
      print([set(found) for found in threads])
    case 'report' | 'result' as what:
      if what == 'result':
        streams.stdout_is_the_result()
      for _ in range(100_000):
        print('line')
  print('width', CONFIG.value and CONFIG.value.model.width)


if __name__ == '__main__':
  command.run(main)
"""
CONFIG = """
import ml_collections


def get_config():
  model = {'width': 128, 'cell': 'simple_rnn'}
  return ml_collections.ConfigDict({'model': model, 'seed': 0}).lock()
"""


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('launcher')
  files = {
    'main.py': LAUNCHER,
    'good.py': CONFIG,
    'syntax.py': 'def get_config(:\n',
    'typo.py': CONFIG.replace('return', 'model =').replace(
      '.lock()', '.lock(); model.sed = 1'
    ),
    'refuses.py': textwrap.dedent("""
      from rnn_jax import errors
      def get_config():
        raise errors.InputError('y=1: give 2')
    """),
  }
  for name, text in files.items():
    (folder / name).write_text(text, encoding='utf-8')
  return folder


def run(folder, *arguments):
  """In this process. Returns (exit code, stdout, stderr)."""
  return launchers.run_file(folder / 'main.py', *arguments, folder=folder)


def launch(folder, *arguments):
  return subprocess.run(
    [sys.executable, 'main.py', *arguments],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def launch_as_run(folder, *arguments):
  """In a process of its own. Returns as `run` does."""
  result = launch(folder, *arguments)
  return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
  ('arguments', 'message'),
  (
    (['--config=good.py'], '--say is missing: see --help'),
    (['--say=x', '--sya=1'], "Unknown command line flag 'sya'. Did you mean:"),
    (['--say=x', 'stray'], "unexpected argument 'stray'"),
    (
      ['--say=x', '--config=good.py', '--config.model.widht=3'],
      "unknown config key model.widht: did you mean 'width'?",
    ),
    (
      ['--say=x', '--config=good.py', '--config.modle.width=3'],
      "unknown config key modle.width: did you mean 'model'?",
    ),
    (
      ['--say=x', '--config=good.py', '--config.bogus=3'],
      'unknown config key bogus: see the config file',
    ),
    (
      ['--say=x', '--config=good.py', '--config.model.width=abc'],
      'flag --config.model.width=abc: invalid literal for int()',
    ),
    (
      ['--say=x', '--config.model.width=3'],
      '--config=FILE is missing: see --help',
    ),
    (
      ['--say=x', '--config=absent.py'],
      "--config: No such file or directory: 'absent.py'",
    ),
    (['--say=x', '--config=.'], "--config: Is a directory: '.'"),
    (['--say=x', '--config=syntax.py'], '--config: SyntaxError: invalid'),
    (
      ['--say=x', '--config=typo.py'],
      "unknown config key sed: did you mean 'seed'?",
    ),
    (['--say=x', '--config=refuses.py'], 'InputError: y=1: give 2'),
  ),
)
def test_a_wrong_flag_is_one_line(folder, arguments, message):
  code, out, err = run(folder, *arguments)
  assert (code, out) == (1, '')
  assert err.startswith('error: ')
  assert message in err
  assert err.count('\n') == 1


def test_a_wrong_flag_ends_the_process(folder):
  result = launch(folder, '--say=x', 'stray')
  assert result.returncode == 1
  assert result.stdout == ''
  assert result.stderr == (
    "error: unexpected argument 'stray': flags begin with --\n"
  )


def test_help_is_short_and_holds_the_example(folder):
  result = launch(folder, '--help')
  assert result.returncode == 0
  assert 'python -m launch.something --config=FILE' in result.stdout
  own, _, common = result.stdout.partition('\nCommon flags:\n')
  assert re.search(r'\nFlags:\n(.*\n)*  --say +What\.', own)
  assert '--cpus' in common and '--cpus' not in own
  assert 'run_with_pdb' not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', [command.name for command in command_line.commands()]
)
def test_each_command_starts_and_shows_its_example(name):
  code, out, err = tiny.finish(tiny.launch(name, '--help'))
  assert (code, err) == (0, '')
  assert f'python -m launch.{name}' in out and '\nFlags:\n' in out


@pytest.mark.parametrize('flag', ('-h', '--helpshort', '--helpfull'))
def test_each_way_to_ask_for_help_succeeds(folder, flag):
  code, out, err = run(folder, flag)
  assert (code, err) == (0, '')
  assert 'python -m launch.something --config=FILE' in out
  assert ('run_with_pdb' in out) == (flag == '--helpfull')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('say', 'code', 'stderr'),
  (
    ('hello', 0, ''),
    ('input', 1, 'error: x=3: give 4\n'),
    ('interrupt', 130, ''),
  ),
)
def test_main_ends_with_a_code_and_no_traceback(folder, say, code, stderr):
  # A process only for what the interpreter itself could report.
  started = launch_as_run if say == 'interrupt' else run
  ended, out, err = started(folder, f'--say={say}', '--config=good.py')
  assert ended == code
  assert err == 'WARNING: heed this\n' + stderr
  assert out == ('width 128\n' if code == 0 else '')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('say', 'message'),
  (
    ('bug', 'RuntimeError: a bug'),
    ('transfer', 'Disallowed host-to-device transfer'),
  ),
)
def test_a_bug_keeps_its_traceback(folder, say, message):
  code, _, err = run(folder, f'--say={say}')
  assert code == 1
  before, _, after = err.partition('Traceback')
  assert before.splitlines()[-1] == command.DEFECT
  assert message in after


@pytest.mark.slow
@pytest.mark.parametrize(('say', 'code'), (('report', 0), ('result', 141)))
def test_a_reader_that_leaves_ends_only_a_result(folder, say, code):
  process = subprocess.Popen(
    [sys.executable, 'main.py', f'--say={say}'],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  process.stdout.readline()
  process.stdout.close()
  with process.stderr as stderr:
    assert stderr.read() == 'WARNING: heed this\n'
  assert process.wait(timeout=300) == code


@pytest.mark.parametrize(
  ('flag', 'message'),
  (
    ('--cpus=0-3,4096', '--cpus=0-3,4096: CPU '),
    ('--cpus=3-1', '--cpus=3-1: the range is empty: give 0-3, not 3-0'),
    ('--cpus=0,', '--cpus=0,: give numbers and ranges, e.g. 0-3,8'),
    ('--cpus=all', '--cpus=all: give numbers and ranges, e.g. 0-3,8'),
    ('--memory_fraction=most', "'most'"),
  ),
)
def test_a_wrong_setting_of_the_machine_is_one_line(folder, flag, message):
  code, _, err = run(folder, '--say=x', flag)
  assert code == 1
  assert err.startswith('error: ')
  assert message in err
  assert err.count('\n') == 1


def settle(monkeypatch, gpu, **values):
  """Settles the memory flags. Returns the variables that XLA then finds."""
  names = 'XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_PREALLOCATE'
  for name in names:
    monkeypatch.setenv(name, 'before')
  monkeypatch.setenv('XLA_FLAGS', '--theirs')
  monkeypatch.setenv('XLA_PYTHON_CLIENT_MEM_FRACTION', '.3')
  monkeypatch.setattr(command, 'GPUS', ('/dev/null',) if gpu else ())
  with flagsaver.flagsaver(**values):
    command._pass_memory()
  return [os.environ.get(name) for name in names]


def test_memory_flags_become_what_xla_reads(monkeypatch):
  assert settle(monkeypatch, False) == ['before', 'before']
  found = settle(monkeypatch, True, memory_fraction=0.5, preallocate=False)
  assert found == ['0.5', 'false']
  # The compiler plans with .8 of the memory, times so many per cent.
  limit = '--xla_gpu_memory_limit_slop_factor=62'
  assert os.environ['XLA_FLAGS'] == f'{limit} --theirs'
  assert 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in os.environ
  assert settle(monkeypatch, True, preallocate=True) == ['before', 'true']


@pytest.mark.parametrize(
  ('gpu', 'values', 'message'),
  (
    (True, {'memory_fraction': 1.5}, '--memory_fraction=1.5: give a fraction'),
    (True, {'memory_fraction': 0.0}, '--memory_fraction=0.0: give a fraction'),
    (
      False,
      {'memory_fraction': 0.5},
      '--memory_fraction=0.5: .* there is no GPU',
    ),
    (False, {'preallocate': False}, '--preallocate=False: .* there is no GPU'),
  ),
)
def test_memory_flags_without_use_are_refused(
  monkeypatch, gpu, values, message
):
  with pytest.raises(errors.InputError, match=message):
    settle(monkeypatch, gpu, **values)


@pytest.mark.slow
def test_a_command_runs_on_the_cpus_that_it_is_given(folder):
  first = min(os.sched_getaffinity(0))
  result = launch(folder, '--say=cpus', f'--cpus={first}')
  assert result.returncode == 0, result.stderr
  assert result.stdout.splitlines()[0] == str([{first}])


@pytest.mark.parametrize(
  ('name', 'remedy'),
  (
    ('config.json', "--workdir='.*' opens that run"),
    ('notes.txt', 'give one of .*, or a file of your own'),
  ),
)
def test_a_config_that_is_no_python_file_is_not_run(tmp_path, name, remedy):
  path, ran = tmp_path / name, tmp_path / 'ran'
  path.write_text(f'open({str(ran)!r}, "w").close()\n')
  code, out, err = launchers.run(
    'train', f'--config={path}', f'--workdir={tmp_path}/run'
  )
  assert (code, out) == (1, '')
  assert re.fullmatch(f'error: --config=.*: a config is .*{remedy}.*\n', err)
  assert not ran.exists()


@pytest.mark.parametrize(
  ('given', 'message'),
  (
    ('stdlib_byte', "no such name: did you mean 'stdlib_bytes'?"),
    ('nothing_like_it', "no such name: choose one of ['bdh', "),
    ('configs/recal.py', 'no such file: did you mean --config=recall, which'),
  ),
)
def test_a_near_miss_of_a_config_is_suggested(folder, given, message):
  flags = 'train', f'--config={given}', '--print_config'
  code, out, err = launchers.run(*flags)
  assert (code, out) == (1, '')
  assert err.startswith(f'error: --config={given!r}: {message}')
  assert err.count('\n') == 1


def test_a_name_means_a_config_that_comes_with_rnn_jax(tmp_path):
  (tmp_path / 'recall.py').write_text('raise ValueError\n')
  train = ROOT / 'launch/train.py'
  flags = '--config=recall:attention', '--print_config'
  code, out, err = launchers.run_file(train, *flags, folder=tmp_path)
  assert (code, err) == (0, '')
  assert '"cell": "attention"' in out
  code, _, err = launchers.run_file(
    train, '--config=./recall.py', *flags[1:], folder=tmp_path
  )
  assert code == 1 and 'ValueError' in err
