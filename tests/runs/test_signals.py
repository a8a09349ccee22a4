"""A signal stops a run between two steps."""

import os
import signal

import pytest

from rnn_jax.runs import signals


@pytest.mark.parametrize('number', signals.StopRequest.SIGNALS)
def test_the_first_signal_is_noted_and_the_handlers_are_restored(number):
  before = signal.getsignal(number)
  with signals.StopRequest() as stop:
    assert stop.name is None and not stop.wanted(3)
    os.kill(os.getpid(), number)
    assert stop.name == signal.Signals(number).name and stop.wanted(4)
  assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait():
  with signals.StopRequest():
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
