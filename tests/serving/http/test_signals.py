"""The first signal drains a server, a later one ends it."""

import os
import signal
import threading
import time
import types

import pytest

from rnn_jax.serving.http import server
from rnn_jax.system import signal_thread

# A thread that ends as the process would.
pytestmark = pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)


@pytest.fixture
def codes(monkeypatch):
  """The exit codes with which the process would have ended."""
  ended = []

  def end(code):
    ended.append(code)
    raise SystemExit

  monkeypatch.setattr(signal_thread, 'end_now', end)
  return ended


class Service:
  """Counts how often it is stopped."""

  def __init__(self):
    self.stops, self.stopped = 0, threading.Event()

  def stop(self, seconds):
    del seconds
    self.stops += 1
    self.stopped.set()


@pytest.mark.parametrize(('repeat', 'ends'), ((60.0, []), (0.0, [130])))
def test_a_pair_of_signals_is_one_request(repeat, ends, codes, monkeypatch):
  monkeypatch.setattr(signal_thread, 'REPEAT', repeat)
  service = Service()
  with server.Stop(service, 1.0) as stop:
    stop.ends(types.SimpleNamespace(should_exit=False))
    os.kill(os.getpid(), signal.SIGTERM)
    assert service.stopped.wait(60)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
  assert service.stops == 1 and stop.name == 'SIGTERM' and codes == ends
