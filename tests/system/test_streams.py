"""What can't be printed is dropped, unless it is the result."""

import errno
import io
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import pytest

from rnn_jax import errors
from rnn_jax.system import streams

ROOT = pathlib.Path(streams.__file__).parents[2]


def text(descriptor, encoding='utf-8'):
  like = io.TextIOWrapper(io.BytesIO(), encoding)
  return streams.replaced(descriptor, like)


def gone():
  """A pipe without a reader."""
  reader, writer = os.pipe()
  os.close(reader)
  return writer


def full():
  return os.open('/dev/full', os.O_WRONLY)


def read_only():
  """What a closed descriptor is replaced with."""
  return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize('make', (gone, full, read_only))
@pytest.mark.parametrize('line', ('step 5/40', 'x' * 100_000))
def test_what_cannot_be_written_is_dropped(make, line):
  stream = text(make())
  for _ in range(3):
    print(line, file=stream, flush=True)
  stream.close()


@pytest.mark.parametrize(
  ('make', 'error'),
  (
    (gone, streams.ReaderGone),
    (full, OSError),
    (read_only, errors.InputError),
  ),
)
def test_a_result_that_cannot_be_written_is_an_error_once(
  make, error, monkeypatch
):
  stream = text(make())
  monkeypatch.setattr(sys, 'stdout', stream)
  streams.stdout_is_the_result()
  with pytest.raises(error) as raised:
    print('a', flush=True)
  if error is OSError:
    line = 'standard output: No space left on device: free some space'
    assert raised.value.errno == errno.ENOSPC
    assert errors.explain(raised.value) == line
  print('b', flush=True)  # Python flushes once more at exit


def test_a_reader_that_does_not_read_is_waited_for():
  reader, writer = os.pipe()
  stream = text(writer)
  line = 'x' * 300_000  # more than a pipe holds

  def write():
    print(line, file=stream, flush=True)
    os.close(writer)

  thread = threading.Thread(target=write)
  thread.start()
  with open(reader, encoding='utf-8') as file:
    assert file.read() == line + '\n'
  thread.join()


def test_a_reader_that_does_not_read_holds_no_stop(monkeypatch):
  monkeypatch.setattr(streams, '_deadline', [float('inf')])
  monkeypatch.setattr(streams, 'PATIENCE', 0.0)
  reader, writer = os.pipe()
  stream = text(writer)
  began = threading.Event()

  def write():
    began.set()
    print('x' * 300_000, file=stream, flush=True)

  thread = threading.Thread(target=write, daemon=True)
  thread.start()
  assert began.wait(60)
  streams.hurry()
  thread.join(60)
  assert not thread.is_alive()
  os.close(reader)


def test_a_pipe_that_does_not_block_loses_nothing():
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  stream = text(writer)
  line = 'x' * 300_000
  thread = threading.Thread(
    target=lambda: (print(line, file=stream, flush=True), os.close(writer))
  )
  thread.start()
  with open(reader, encoding='utf-8') as file:
    assert file.read() == line + '\n'
  thread.join()


@pytest.mark.parametrize('encoding', ('ascii', 'latin-1', 'utf-8'))
@pytest.mark.parametrize(
  'value', ('caf\u00e9', '\u2013', '\U0001f600', '\udc80')
)
def test_json_keeps_its_value_in_any_encoding(encoding, value, tmp_path):
  path = tmp_path / 'out'
  descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
  with text(descriptor, encoding) as stream:
    print(json.dumps(value, ensure_ascii=False), file=stream)
  os.close(descriptor)
  assert json.loads(path.read_text(encoding=encoding)) == value


def run(code, redirections, *, environment=None):
  """Runs Python under a shell's redirections. Returns (code, its files)."""
  program = textwrap.dedent(code)
  return subprocess.run(
    ['sh', '-c', f'exec "$0" -c "$1" {redirections}', sys.executable, program],
    cwd=ROOT,
    env={**os.environ, **(environment or {})},
    capture_output=True,
    text=True,
    check=False,
  )


CLOSED = """
  import os, sys
  from absl import logging
  from rnn_jax.system import streams
  with streams.guarded():
    print('out')
    print('err', file=sys.stderr)
    logging.error('logged')
    assert sys.stdin.read() == ''
    opened = os.open(os.devnull, os.O_RDONLY)
    assert opened > 2, opened
  os._exit(7)
"""


def test_closed_descriptors_are_not_those_of_the_next_file():
  assert run(CLOSED, '<&- >&- 2>&-').returncode == 7
  one = run(CLOSED, '<&- >&-')
  assert one.returncode == 7
  assert one.stderr.splitlines()[0] == 'err' and 'logged' in one.stderr
  assert run(CLOSED, '<&- 2>&-').stdout == 'out\n'


def test_streams_are_as_before_afterwards():
  before = sys.stdout, sys.stderr
  with streams.guarded(), streams.guarded():
    pass
  assert (sys.stdout, sys.stderr) == before
