"""What every request passes before its route, and every answer after it.

In this order: a number for the log, the Host header, the key, the size and the
arrival of the body; afterwards security headers, metrics, and a line of the
access log. Whatever a route raises becomes an error object.

Without keys a server answers only to the names of this machine: else a page of
a stranger, whose name its owner points at 127.0.0.1, could use it from within a
browser. For the same reason a body must be announced as JSON.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable

from starlette import datastructures
from starlette import requests
from starlette import types

from rnn_jax.serving.http import access_log
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import metrics as metrics_lib
from rnn_jax.serving.http import service as service_lib

OPEN = ('/', '/page/', '/healthz', '/readyz')  # need no key
LOCAL = ('localhost', '127.0.0.1', '[::1]', '::1')
HEADERS = {
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}


class Guard:
  """See the module's docstring."""

  def __init__(
    self,
    app: types.ASGIApp,
    service: service_lib.Service,
    metrics: metrics_lib.Metrics,
    log: access_log.AccessLog,
    hosts: Iterable[str] = (),
  ) -> None:
    """Takes the routes; `hosts` are names besides LOCAL, '*' any."""
    self._app = app
    self._service = service
    self._metrics = metrics
    self._log = log
    self._hosts = {*LOCAL, *hosts}
    self._open: dict[str, int] = {}  # requests by owner

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    """Answers one request."""
    if scope['type'] != 'http':
      await self._app(scope, receive, send)
      return
    begun = time.monotonic()
    entry = {
      'id': f'req-{secrets.token_hex(8)}',
      'owner': None,
      'method': scope['method'],
      'path': scope['path'][:200],
      'status': http_errors.CUT,
    }
    scope.setdefault('state', {})['entry'] = entry
    started = False

    async def send_on(message):
      nonlocal started
      if message['type'] == 'http.response.start':
        started = True
        entry['status'] = message['status']
        headers = datastructures.MutableHeaders(scope=message)
        for name, value in HEADERS.items():
          headers.setdefault(name, value)
        headers['X-Request-Id'] = entry['id']
      await send(message)

    self._metrics.open.inc()
    owner = None
    try:
      owner = self._admit(scope)
      entry['owner'] = scope['state']['owner'].name
      receive = self._limited(receive)
      await self._app(scope, receive, send_on)
    except Exception as error:  # noqa: BLE001, it becomes an answer
      failure = _explain(error, entry)
      if not started:
        await http_errors.respond(failure)(scope, receive, send_on)
    except asyncio.CancelledError:
      entry['status'] = http_errors.CUT
      raise
    finally:
      if owner is not None:
        self._leave(owner)
      self._metrics.open.dec()
      seconds = time.monotonic() - begun
      route = _route(scope)
      self._metrics.requests.labels(route, str(entry['status'])).inc()
      self._metrics.seconds.labels(route).observe(seconds)
      self._log.write({**entry, 'seconds': round(seconds, 6)})

  def _admit(self, scope):
    """Checks who asks. Returns the owner whose open requests grow, or None.

    Raises:
      ApiError: the host, the key or the number of requests is wrong.
    """
    headers = dict(scope['headers'])
    service = self._service
    self._check_host(headers.get(b'host', b'').decode('latin-1'))
    path = scope['path']
    scope['state']['owner'] = auth.ANYONE
    if path in OPEN or path.startswith('/page/'):
      return None
    given = headers.get(b'authorization', b'').decode('latin-1')
    scope['state']['owner'] = owner = service.keys.owner(given)
    if scope['method'] not in ('POST', 'PUT'):
      return None
    kind = headers.get(b'content-type', b'').partition(b';')[0].strip().lower()
    if kind != b'application/json':
      raise http_errors.ApiError(
        415, 'send JSON, with the header Content-Type: application/json'
      )
    if not service.ready:
      raise http_errors.stopping()
    length = headers.get(b'content-length', b'0')
    if length.isdigit() and int(length) > service.options.limits.body_bytes:
      raise self._too_large()
    most = service.options.limits.owner_requests
    if most and self._open.get(owner.name, 0) >= most:
      raise http_errors.overloaded(
        f'your key has {most} requests open, as many as it may: try again later'
      )
    self._open[owner.name] = self._open.get(owner.name, 0) + 1
    return owner.name

  def _leave(self, owner):
    self._open[owner] -= 1
    if not self._open[owner]:
      del self._open[owner]

  def _check_host(self, host):
    if self._service.keys or '*' in self._hosts:
      return
    name = host if host.endswith(']') else host.rpartition(':')[0] or host
    if name.lower() not in self._hosts:
      raise http_errors.ApiError(
        421,
        f'Host {host[:100]!r} is not a name of this server: give it by '
        '--allowed_hosts, or use keys',
        http_errors.BAD,
        None,
        'wrong_host',
      )

  def _limited(self, receive):
    """Wraps `receive`: the body has a size, and arrives in time."""
    limits = self._service.options.limits
    left, until = limits.body_bytes, time.monotonic() + limits.body_seconds
    whole = False

    async def limited():
      nonlocal left, whole
      if whole:
        return await receive()
      try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
          message = await receive()
      except TimeoutError:
        raise http_errors.ApiError(
          408, 'the body did not arrive in time', code='timeout'
        ) from None
      if message['type'] == 'http.request':
        left -= len(message.get('body', b''))
        whole = not message.get('more_body', False)
        if left < 0:
          raise self._too_large()
      return message

    return limited

  def _too_large(self):
    most = self._service.options.limits.body_bytes
    return http_errors.ApiError(
      413, f'the body has more than {most:,} bytes', code='body_too_large'
    )


def _explain(error, entry):
  if isinstance(error, requests.ClientDisconnect):
    return http_errors.left()
  failure = http_errors.explain(error, entry)
  if failure.status == 500:  # whatever has been sent
    entry['status'] = 500
  return failure


def _route(scope):
  """The route's pattern: a label of few values, whatever paths are asked."""
  route = scope.get('route')
  return getattr(route, 'path', 'other')
