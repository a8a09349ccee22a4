"""The process: a socket, an event loop, and an end without lost requests.

SIGTERM, SIGINT (Ctrl-C) and SIGHUP stop the server: /readyz says so at once,
new requests get 503, and those that run have `drain_seconds`; after that they
end with the text they have. A later signal ends the process at once. As other
commands, it exits with 128 + the signal.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import uvicorn

from rnn_jax import errors
from rnn_jax.serving.http import connections
from rnn_jax.serving.http import service as service_lib
from rnn_jax.system import signal_thread

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LAST = 5.0  # seconds after the drain in which answers may still be sent
POLL = 0.2
WAITING = 2048  # connections that the system keeps until they are accepted
SWEEP = 5  # ticks, of 0.1 s, between two sweeps over the connections
GRACE = 30.0  # seconds for the rest of an answer, after the longest request


def listen(host: str, port: int) -> socket.socket:
  """Returns a socket that is bound, but takes no connections yet.

  Raises:
    InputError: the address can't be had.
  """
  try:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
  except (OSError, OverflowError) as error:
    reason = getattr(error, 'strerror', None) or str(error)
    raise errors.InputError(
      f'host={host!r}, port={port}: {reason}: give another --host or --port'
    ) from None
  return bound


class Stop:
  """Inside it the first signal drains the server, a later one ends it.

  Attributes:
    name: of the first signal, such as 'SIGTERM', or None.
  """

  def __init__(
    self, service: service_lib.Service, drain_seconds: float
  ) -> None:
    self.name: str | None = None
    self._service = service
    self._drain_seconds = drain_seconds
    self._server: uvicorn.Server | None = None
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'Stop':
    for number in SIGNALS:
      before = signal.getsignal(number)
      if number == signal.SIGHUP and before == signal.SIG_IGN:
        continue  # nohup started it, to outlive the terminal
      signal.signal(number, _nothing)
      self._stack.callback(signal.signal, number, before)
    self._stack.enter_context(signal_thread.watched(self._watch))
    return self

  def __exit__(self, *error: object) -> None:
    self._stack.close()

  def ends(self, server: uvicorn.Server) -> None:
    """Names the server that a signal ends; before that, it ends the process."""
    self._server = server

  def _watch(self, pipe: int) -> None:
    came = until = float('inf')
    while True:
      numbers = signal_thread.read(pipe, POLL if self.name else None)
      if signal_thread.DONE[0] in numbers:
        return
      if time.monotonic() > until:
        signal_thread.end_now(signal_thread.exit_code(self.name))
      for number in numbers:
        if number not in SIGNALS:
          continue
        if self.name and time.monotonic() < came + signal_thread.REPEAT:
          continue  # signals come in pairs, see runs/signals.py
        if self.name or self._server is None:
          signal_thread.end_now(128 + number)
        came = time.monotonic()
        self.name = signal.Signals(number).name
        until = time.monotonic() + self._drain_seconds + 2 * LAST
        threading.Thread(target=self._drain, daemon=True).start()

  def _drain(self) -> None:
    self._service.stop(self._drain_seconds)
    assert self._server is not None
    self._server.should_exit = True


class _Server(uvicorn.Server):
  """Leaves signals to Stop, and says when it listens."""

  def __init__(self, config: uvicorn.Config, announce: Callable[[], None]):
    super().__init__(config)
    self._announce = announce

  @contextlib.contextmanager
  def capture_signals(self) -> Iterator[None]:
    yield

  async def startup(self, sockets: Any = None) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(connections.report_failure)
    await super().startup(sockets)
    for each in sockets or ():
      each.listen(WAITING)  # more than are accepted at a time
    self._announce()

  async def on_tick(self, counter: int) -> bool:
    if counter % SWEEP == 0:
      connections.sweep(self.server_state.connections)
    return await super().on_tick(counter)


def run(
  app: Any,
  bound: socket.socket,
  announce: Callable[[], None],
  patience: connections.Patience,
  stop: Stop | None = None,
) -> None:
  """Serves until a signal.

  Args:
    app: the ASGI application.
    bound: from `listen`.
    announce: called once it listens.
    patience: with clients.
    stop: what ends it; None: nothing does.
  """
  server = make(app, announce, patience)
  if stop is not None:
    stop.ends(server)
  asyncio.run(server.serve([bound]))


def patience(limits: service_lib.Limits) -> connections.Patience:
  """Returns the patience of a server with the limits of its requests.

  Raises:
    InputError: the process may open too few files.
  """
  room = connections.available()
  return connections.Patience(
    connections=room.connections,
    burst=room.burst,
    body=limits.body_seconds + LAST,  # the application says so before
    answer=limits.body_seconds + limits.seconds + GRACE,
  )


def make(
  app: Any, announce: Callable[[], None], patience: connections.Patience
) -> uvicorn.Server:
  """Returns the server of an application; `should_exit` ends it."""
  # Its warnings are of requests that aren't HTTP: a stranger could fill a disk.
  logging.getLogger('uvicorn').setLevel(logging.ERROR)
  config = uvicorn.Config(
    app,
    loop='asyncio',
    http=connections.protocol(patience),
    ws='none',
    lifespan='off',
    log_config=None,
    access_log=False,
    server_header=False,
    proxy_headers=False,
    backlog=patience.burst,
    timeout_keep_alive=int(patience.idle + 2 * GRACE),  # a sweep comes first
    timeout_graceful_shutdown=int(LAST),
  )
  return _Server(config, announce)


def _nothing(number: int, frame: Any) -> None:
  """The handler of a signal that Stop reads from a pipe."""
  del number, frame
