"""A Redis server of a test."""

import contextlib
import shutil
import socket
import subprocess
import time

import pytest

from rnn_jax import errors
from rnn_jax.serving import store as store_lib


@contextlib.contextmanager
def started(folder):
  """The URL of a server; skips if there is no program or no package."""
  pytest.importorskip('redis')
  program = shutil.which('redis-server')
  if program is None:
    pytest.skip('needs redis-server: apt-get install redis-server')
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  process = subprocess.Popen(
    [program, '--port', str(port), '--save', '', '--bind', '127.0.0.1'],
    cwd=folder,
    stdout=subprocess.DEVNULL,
  )
  try:
    url = f'redis://127.0.0.1:{port}/0'
    end = time.monotonic() + 30
    while True:
      try:
        store_lib.open_store(url).close()
        break
      except errors.InputError:
        assert time.monotonic() < end, 'the server did not start'
        time.sleep(0.05)
    yield url
  finally:
    process.terminate()
    process.wait()
