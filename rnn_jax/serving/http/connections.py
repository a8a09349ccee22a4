"""Connections that can't be held: each phase ends, and descriptors suffice.

    idle      no byte of a request has come
    head      some have, not all of the head
    body      the head has come, not all of the body
    answer    the application works: its own limits count
    reading   bytes of the answer wait for the client to read them

A client that stays in a phase for longer than Patience allows is cut off; one
in `head` gets 408 first, and the application answers one in `body` that is too
slow. A client that reads a little now and then has until the end of the longest
request.

There are never more connections than descriptors of the process allow. At the
limit a new one takes the place of the one that has made the server wait for the
longest time, so that idle ones keep nobody out; if all are being answered, it
gets 503.
"""

import asyncio
import dataclasses
import os
import resource
import time
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import h11
from absl import logging
from uvicorn.protocols.http import h11_impl

from rnn_jax import errors
from rnn_jax.serving import defects
from rnn_jax.system import files

MAX_CONNECTIONS = 4096  # connections, whatever the descriptors
BURST = 512  # connections that are accepted before one is looked at
RESERVE = 32  # descriptors for files and stores
MIN_CONNECTIONS = 8  # connections that make a server
EVERY = 60.0  # seconds between two lines of one kind
WAITING = ('idle', 'head', 'body')  # for a request


@dataclasses.dataclass(frozen=True)
class Patience:
  """How many connections there may be, and how long each phase may last.

  Attributes:
    connections: at once.
    burst: of them that are accepted before one is looked at.
    idle, head, body: seconds in these phases.
    reading: seconds in which a client must read something.
    answer: seconds from a request's head until its answer has been read.
  """

  connections: int = MAX_CONNECTIONS
  burst: int = BURST
  idle: float = 30.0
  head: float = 10.0
  body: float = 40.0
  reading: float = 30.0
  answer: float = 360.0


class Room(NamedTuple):
  """How many connections there may be, as in Patience."""

  connections: int
  burst: int


def available() -> Room:
  """Returns how many connections the process may have.

  Its limit of open files is raised as far as the system allows. Two bursts are
  kept free: one is accepted while those that it ends are being closed.

  Raises:
    InputError: the limit is too low for a server.
  """
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  used = len(os.listdir('/dev/fd')) if os.path.isdir('/dev/fd') else RESERVE
  wanted = MAX_CONNECTIONS + 2 * BURST + RESERVE + used
  if soft == resource.RLIM_INFINITY:
    soft = wanted
  limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
  if soft < limit:
    try:
      resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
      soft = limit
    except (OSError, ValueError):
      pass  # it keeps what it has
  free = soft - RESERVE - used
  burst = min(max(free // 8, MIN_CONNECTIONS), BURST)
  count = min(MAX_CONNECTIONS, free - 2 * burst)
  if count < MIN_CONNECTIONS:
    raise errors.InputError(
      f'the limit of open files is {soft}: too low for connections: raise it '
      f'to {RESERVE + used + 3 * MIN_CONNECTIONS} or more (ulimit -n 1024)'
    )
  return Room(count, burst)


class Connection(h11_impl.H11Protocol):
  """A connection that knows what it waits for, and since when.

  Attributes:
    patience: set by `protocol`.
  """

  patience = Patience()

  def connection_made(self, transport: Any) -> None:
    self._transport = transport
    self._phase = 'idle'
    self._seen = ('', 0)  # what changes if the client does anything
    self._since = self._begun = time.monotonic()
    self._latest: Any = None  # the request that began then
    self._written = _Written(transport)
    super().connection_made(self._written)  # type: ignore[arg-type]
    if len(self.connections) > self.patience.connections:
      self._make_room()

  @property
  def phase(self) -> str:
    """What it waits for now."""
    transport = self._transport
    if transport.is_closing() or transport.get_write_buffer_size():
      return 'reading'
    if self.conn.their_state is h11.IDLE:
      return 'head' if self.conn.trailing_data[0] else 'idle'
    if self.conn.their_state is h11.SEND_BODY:
      return 'body'
    return 'answer'

  def waited(self, now: float) -> float:
    """Returns for how long it has been in its phase, as far as is known."""
    phase = self.phase
    # Each answer writes something, and each read of the client takes some.
    sent = self._written.count - self._transport.get_write_buffer_size()
    if (phase, sent) != self._seen:
      self._phase, self._seen, self._since = phase, (phase, sent), now
    if self.cycle is not self._latest:
      self._latest, self._begun = self.cycle, now
    return now - self._since

  def end_if_late(self, now: float) -> None:
    """Cuts off a client that lets the server wait for too long."""
    waited, phase = self.waited(now), self._phase
    if phase == 'answer':
      return
    late = waited > getattr(self.patience, phase)
    if phase == 'reading' and now - self._begun > self.patience.answer:
      late = True
    if not late:
      return
    if phase == 'head':
      self._refuse(408, 'the head of the request did not arrive in time')
      return
    self._transport.abort()  # nothing is left to say to it

  def _make_room(self):
    """Ends the connection that has waited longest, or this one."""
    now = time.monotonic()
    others = [
      each
      for each in self.connections
      if each is not self and isinstance(each, Connection)
    ]
    waited = {each: each.waited(now) for each in others}
    waiting = [
      each
      for each in others
      if each.phase in WAITING or each.phase == 'reading' and waited[each] > 1
    ]
    line(
      'connections',
      '%d connections, as many as the open files allow: the ones that have '
      'waited longest are closed (raise ulimit -n)',
      self.patience.connections,
    )
    if waiting:
      oldest = max(waiting, key=lambda each: waited[each])
      self.connections.discard(oldest)
      oldest._transport.abort()
      return
    self._refuse(503, 'the server has no connection left: try again later')

  def _refuse(self, status, message):
    """Answers a client that has sent no whole request, and closes."""
    kind = 'server_error' if status >= 500 else 'invalid_request_error'
    error = {'message': message, 'type': kind, 'param': None, 'code': None}
    body = files.to_json({'error': error}).encode()
    reason = h11_impl.STATUS_PHRASES[status]
    self._transport.write(
      b'HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: '
      b'%d\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s'
      % (status, reason, len(body), body)
    )
    self._transport.close()


class _Written:
  """A transport that counts what is written to it."""

  def __init__(self, transport: Any) -> None:
    self.count = 0
    self._transport = transport

  def __getattr__(self, name: str) -> Any:
    return getattr(self._transport, name)

  def write(self, data: bytes) -> None:
    if self._transport.is_closing():
      return  # asyncio would log each
    self.count += len(data)
    self._transport.write(data)


def protocol(patience: Patience) -> type[Connection]:
  """Returns the protocol of connections with this patience."""
  return type('PatientConnection', (Connection,), {'patience': patience})


def sweep(connections: Iterable[Any]) -> None:
  """Ends the connections that are late."""
  now = time.monotonic()
  for each in [*connections]:
    each.end_if_late(now)


def report_failure(
  loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
  """Says in one line what went wrong in an event loop; its handler.

  Python's own prints a traceback for each connection that the system refuses.
  """
  error = context.get('exception')
  if isinstance(error, OSError):
    words = f'{context["message"]}: {error.strerror or error}'
    line(words, '%s: raise ulimit -n, or have fewer clients', words)
  elif isinstance(error, BaseException):
    defects.log(context['message'], error)
  else:
    loop.default_exception_handler(context)


_said: dict[str, float] = {}  # when a line of each kind was written


def line(kind: str, message: str, *values: Any) -> None:
  """Logs a warning, unless one of its kind was logged a short time ago."""
  now = time.monotonic()
  if now - _said.get(kind, -EVERY) >= EVERY:
    _said[kind] = now
    logging.warning(message, *values)
