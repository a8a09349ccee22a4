"""On Windows, layers and operations run; all else is refused in one line."""

import subprocess
import sys

import pytest

from rnn_jax.system import processor
from rnn_jax.system import supported
from tests.support import tiny

# What Windows lacks. jax and what it imports stay those of this system.
WINDOWS = """
import os, signal, subprocess, sys
import flax.linen, flax.nnx, jax
for name in ('fcntl', 'grp', 'pwd', 'resource', 'termios'):
  sys.modules[name] = None
for name in ('fork', 'geteuid', 'getuid', 'kill', 'killpg', 'mkfifo',
    'sched_getaffinity', 'sched_setaffinity', 'set_blocking', 'sysconf',
    'O_CLOEXEC', 'O_NOFOLLOW', 'O_NONBLOCK'):
  delattr(os, name)
for name in ('SIGHUP', 'SIGKILL', 'SIGXCPU'):
  delattr(signal, name)
sys.platform = 'win32'
"""


def run(code, *arguments):
  """Runs code in a new process, as on Windows. Returns how it ended."""
  command = (sys.executable, '-c', WINDOWS + code, *arguments)
  return subprocess.run(
    command, cwd=tiny.ROOT, capture_output=True, text=True, check=False
  )


def test_layers_run_and_runs_are_refused():
  ended = run("""
import jax.numpy as jnp
import rnn_jax
layer = rnn_jax.layers.SimpleRNN(4)
x_BxLxD = jnp.ones((1, 3, 4))
params = layer.init(jax.random.key(0), x_BxLxD)
print(jax.tree.leaves(layer.apply(params, x_BxLxD))[-1].shape)
try:
  rnn_jax.load('run')
except ValueError as error:
  print(error)
""")
  assert not ended.returncode, ended.stderr
  shape, why = ended.stdout.splitlines()
  assert shape == '(1, 3, 4)'
  assert why.startswith('rnn_jax.load runs on Linux and macOS: Windows lacks')


@pytest.mark.parametrize(
  'arguments',
  (('train', '--config=stdlib_bytes', '--workdir=run'), ('doctor',)),
)
def test_a_command_is_refused_in_a_line(arguments):
  code = 'from rnn_jax import command_line; sys.exit(command_line.main())'
  ended = run(code, *arguments)
  assert ended.returncode == 1
  assert ended.stderr.startswith('error: this command runs on Linux and macOS')
  assert ended.stderr.count('\n') == 1 and not ended.stdout


def test_this_system_is_supported():
  supported.check('a test')


def test_cores_are_those_of_the_process_or_of_the_machine(monkeypatch):
  monkeypatch.setattr(processor.os, 'sched_getaffinity', lambda _: {0, 3})
  assert processor.cores() == 2
  monkeypatch.delattr(processor.os, 'sched_getaffinity')
  monkeypatch.setattr(processor.os, 'cpu_count', lambda: 5)
  assert processor.cores() == 5
