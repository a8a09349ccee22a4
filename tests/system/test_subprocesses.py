"""A command's output is shown and kept; one line says how it ended."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from rnn_jax.runs import signals
from rnn_jax.system import subprocesses


def run(code, folder, **options):
  folder.mkdir(exist_ok=True)
  with open(folder / 'run.log', 'a', encoding='utf-8') as log:
    command = [sys.executable, '-c', code]
    return subprocesses.run(command, log=log, **options)


def test_output_is_kept_and_stdout_is_shown_and_comes_back(tmp_path, capsys):
  code = (
    "import sys; print('one'); print('two', file=sys.stderr); print('thrée')"
  )
  for _ in range(2):
    shown = []
    ended = run(code, tmp_path / 'run', show=shown.append)
    assert ended.error == ''
    assert (ended.out, ended.err) == (['one', 'thrée'], ['two'])
    assert shown == ended.out and capsys.readouterr().out == ''
  log = (tmp_path / 'run' / 'run.log').read_text(encoding='utf-8')
  assert sorted(log.split()) == sorted(['one', 'thrée', 'two'] * 2)


ENDS = {
  'a launcher, with a warning before': (
    "sys.exit('WARNING: x\\nerror: lower it,\\n  by half')",
    'lower it, by half',
  ),
  'an exception': ("raise KeyError('gone')", "KeyError: 'gone'"),
  'silence': ('sys.exit(3)', 'exit code 3'),
  'a signal': ('os.kill(os.getpid(), 9)', 'killed by SIGKILL'),
  'a signal after words': (
    "sys.stderr.write('too much'); sys.stderr.flush(); os.kill(os.getpid(), 9)",
    'killed by SIGKILL: too much',
  ),
}


@pytest.mark.parametrize('case', ENDS)
def test_the_end_is_one_line(case, tmp_path):
  code, error = ENDS[case]
  assert run(f'import os, sys; {code}', tmp_path).error == error


def test_a_command_that_takes_too_long_is_killed(tmp_path):
  code = "import time; print('begun', flush=True); time.sleep(60)"
  ended = run(code, tmp_path, timeout=2)
  assert (ended.code, ended.out) == (None, ['begun'])
  assert ended.error == 'timed out after 2 s'
  assert ended.seconds < 30


def test_a_request_to_stop_is_forwarded_once_and_waited_for(tmp_path):
  code = """
import signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
print('ready', flush=True)
while not seen: time.sleep(0.01)
time.sleep(0.5)
print('saved', len(seen))
"""
  with signals.StopRequest() as stop:
    log = tmp_path / 'run.log'

    def ask():
      while not (log.exists() and 'ready' in log.read_text()):
        time.sleep(0.02)
      os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    ended = run(code, tmp_path, stop=lambda: bool(stop.name))
    asking.join()
  assert stop.name == 'SIGTERM'
  assert ended.out == ['ready', 'saved 1'] and ended.error == ''


def test_workers_that_a_command_left_running_are_killed(tmp_path):
  worker = 'import time; time.sleep(60)'
  code = (
    'import subprocess, sys\n'
    f'print(subprocess.Popen([sys.executable, "-c", {worker!r}]).pid)'
  )
  began = time.monotonic()
  ended = run(code, tmp_path)
  assert time.monotonic() - began < 30
  wait_for_end(ended.out[0])


def wait_for_end(pid):
  stat = pathlib.Path('/proc', pid, 'stat')
  end = time.monotonic() + 10
  while stat.exists() and stat.read_text().split()[2] != 'Z':  # a zombie
    assert time.monotonic() < end
    time.sleep(0.05)


@pytest.mark.skipif(sys.platform != 'linux', reason='Linux ends the command')
def test_a_kill_of_this_process_ends_its_command(tmp_path):
  """As `kill -9` of launch.experiments must not leave a training running."""
  note = tmp_path / 'pid'
  command = (
    'import os, pathlib, time\n'
    f'pathlib.Path({str(note)!r}).write_text(f"{{os.getpid()}}\\n")\n'
    'time.sleep(60)'
  )
  code = (
    'import sys; from rnn_jax.system import subprocesses\n'
    f'subprocesses.run([sys.executable, "-c", {command!r}])'
  )
  parent = subprocess.Popen([sys.executable, '-c', code], cwd=subprocesses.ROOT)
  while not (note.exists() and note.read_text().endswith('\n')):
    assert parent.poll() is None
    time.sleep(0.05)
  parent.kill()
  parent.wait()
  wait_for_end(note.read_text().strip())
