"""What a process leaves running is over before the next one has its turn."""

import socket
import threading
import time
from multiprocessing import connection

from benchmarks.harness import turns


def test_alone_waits_once():
  ours, theirs = socket.socketpair()
  pipe = connection.Connection(ours.detach())
  turns.wait_at(theirs.detach())
  process = threading.Thread(target=turns.alone)
  process.start()
  assert pipe.recv() is None
  assert process.is_alive()
  pipe.send(True)
  process.join()
  pipe.close()
  turns.alone()  # it has the device


def test_a_turn_ends_when_no_thread_of_it_runs(monkeypatch):
  monkeypatch.setattr(turns, 'GLANCE', 0.1)
  monkeypatch.setattr(turns, 'PATIENCE', 60.0)
  spinning = []

  def run():
    until = time.perf_counter() + 0.5

    def spin():
      while time.perf_counter() < until:
        pass

    spinning[:] = [threading.Thread(target=spin)]
    spinning[0].start()

  ours, theirs = socket.socketpair()
  pipe = connection.Connection(ours.detach())
  turns.join(theirs.detach())
  process = threading.Thread(target=turns.timed, args=(run, 1))
  process.start()
  try:
    assert pipe.recv() is None
    pipe.send(True)
    assert pipe.recv() >= 0
    assert not spinning[0].is_alive()
  finally:
    pipe.send(False)
    process.join()
    pipe.close()
