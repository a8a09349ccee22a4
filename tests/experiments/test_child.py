"""A child's output is shown and kept; its end is told in one line."""

import os
import pathlib
import signal
import sys
import threading
import time

import pytest

from rnn_jax.experiments import child
from rnn_jax.training import signals


def run(code, folder, stop=None):
  with child.open_log(folder, 'run.log') as log:
    command = [sys.executable, '-c', code]
    return child.run(command, log, stop or signals.StopRequest())


def test_output_is_shown_and_kept_and_stdout_comes_back(tmp_path, capsys):
  code = (
    "import sys; print('one'); print('two', file=sys.stderr); print('thrée')"
  )
  for _ in range(2):
    ended = run(code, tmp_path / 'run')
    assert ended.error == '' and ended.lines == ['one', 'thrée']
    assert sorted(capsys.readouterr().out.split()) == ['one', 'thrée', 'two']
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


def test_a_wish_to_stop_is_passed_on_once_and_waited_for(tmp_path):
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
    ended = run(code, tmp_path, stop)
    asking.join()
  assert stop.name == 'SIGTERM'
  assert ended.lines == ['ready', 'saved 1'] and ended.error == ''


def test_workers_that_a_child_left_behind_end_with_it(tmp_path):
  worker = 'import time; time.sleep(60)'
  code = (
    'import subprocess, sys\n'
    f'print(subprocess.Popen([sys.executable, "-c", {worker!r}]).pid)'
  )
  began = time.monotonic()
  ended = run(code, tmp_path)
  assert time.monotonic() - began < 30
  stat = pathlib.Path('/proc', ended.lines[0], 'stat')
  end = time.monotonic() + 10
  while stat.exists() and stat.read_text().split()[2] != 'Z':  # a zombie
    assert time.monotonic() < end
    time.sleep(0.05)
