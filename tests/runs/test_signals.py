"""A signal stops a run between two steps; a later one ends the process."""

import errno
import os
import signal
import threading
import time

import pytest

from rnn_jax import errors
from rnn_jax.runs import signals
from rnn_jax.system import signal_thread
from tests.support import waiting

# A thread that ends as the process would.
pytestmark = pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)


class Ends:
  """In place of end_now: notes the exit codes, and ends only the thread."""

  def __init__(self):
    self.codes = []
    self.happened = threading.Event()

  def __call__(self, code):
    self.codes.append(code)
    self.happened.set()
    raise SystemExit


@pytest.fixture(autouse=True)
def terminal():
  """Hangups count, also where the tests were started with nohup."""
  before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
  yield
  signal.signal(signal.SIGHUP, before)


@pytest.fixture
def ends(monkeypatch):
  replaced = Ends()
  monkeypatch.setattr(signal_thread, 'end_now', replaced)
  return replaced


@pytest.mark.parametrize('number', signals.StopRequest.SIGNALS)
def test_the_first_signal_is_noted_and_the_handlers_are_restored(number):
  before = signal.getsignal(number)
  with signals.StopRequest() as stop:
    assert stop.name is None and not stop.wanted(3)
    os.kill(os.getpid(), number)
    assert stop.name == signal.Signals(number).name and stop.wanted(4)
  assert signal.getsignal(number) is before


@pytest.mark.parametrize(
  ('number', 'code'),
  ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)),
)
def test_a_later_signal_ends_the_process(
  number, code, ends, monkeypatch, capsys
):
  monkeypatch.setattr(signal_thread, 'REPEAT', 0.0)
  with signals.StopRequest() as stop:
    stop.lost = lambda: '3 steps are lost'
    os.kill(os.getpid(), signal.SIGTERM)
    waiting.until(lambda: stop.name)
    time.sleep(0.1)
    os.kill(os.getpid(), number)
    assert ends.happened.wait(60)
  assert ends.codes == [code] and stop.name == 'SIGTERM'
  name = signal.Signals(number).name
  said = f'{name} after SIGTERM: ended at once: 3 steps are lost\n'
  assert capsys.readouterr().err == said


@pytest.mark.parametrize('number', signals.StopRequest.SIGNALS)
def test_a_pair_of_signals_is_one_request(number, ends):
  with signals.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)
    os.kill(os.getpid(), number)
    assert not ends.happened.wait(0.3)
  assert stop.name == 'SIGTERM' and not ends.codes


@pytest.mark.parametrize(
  ('error', 'line'),
  (
    (errors.InputError('x=1: give 2'), 'error: x=1: give 2\n'),
    (OSError(errno.ENOSPC, 'No space'), 'error: No space left on device'),
    (RuntimeError('odd'), 'RuntimeError: odd\n'),
    (
      BrokenPipeError(errno.EPIPE, 'gone'),
      'BrokenPipeError: [Errno 32]',
    ),
    (
      BaseException('a library panicked'),
      'BaseException: a library panicked\n',
    ),
  ),
)
def test_a_stop_that_fails_ends_the_process_with_its_reason(
  error, line, ends, monkeypatch, capsys
):
  monkeypatch.setattr(signal_thread, 'GRACE', 0.0)

  def fail():
    raise error

  with signals.StopRequest() as stop:
    stop.finish = fail
    os.kill(os.getpid(), signal.SIGTERM)
    assert ends.happened.wait(60)
  assert ends.codes == [1]
  assert line in capsys.readouterr().err


def test_a_main_thread_that_does_not_stop_is_finished(ends, monkeypatch):
  monkeypatch.setattr(signal_thread, 'GRACE', 0.0)
  answers = [False, True]
  with signals.StopRequest() as stop:
    stop.finish = lambda: answers.pop(0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert ends.happened.wait(60)
  assert ends.codes == [143] and not answers


def test_without_a_signal_nothing_is_finished(ends, monkeypatch):
  monkeypatch.setattr(signal_thread, 'GRACE', 0.0)
  with signals.StopRequest() as stop:
    stop.finish = lambda: True
    time.sleep(2 * signals.POLL)
  assert not ends.codes


def test_nohup_is_respected():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with signals.StopRequest() as stop:
      os.kill(os.getpid(), signal.SIGHUP)
    assert stop.name is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize('again', (False, True))
def test_an_interrupt_ends_what_does_not_end_by_itself(
  again, ends, monkeypatch
):
  # After the grace period, or at once when it comes again.
  monkeypatch.setattr(signal_thread, 'GRACE', 60.0 if again else 0.0)
  noted = []
  before = signal.signal(signal.SIGINT, lambda *_: noted.append(1))
  try:
    with signal_thread.prompt_interrupts():
      for _ in range(1 + again):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
      assert ends.happened.wait(50)
  finally:
    signal.signal(signal.SIGINT, before)
  assert ends.codes == [130] and noted
