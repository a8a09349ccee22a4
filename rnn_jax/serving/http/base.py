"""What all routes share: the service, its forms, and threads.

A thread that computes can't be stopped when its client leaves; a request to the
engine can, and `while_connected` notices.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from collections.abc import Callable
from typing import Any
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette import concurrency
from starlette import requests
from starlette import responses

from rnn_jax.serving.http import access_log
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import metrics as metrics_lib
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import service as service_lib
from rnn_jax.system import files

SPARE = 8  # threads that refuse what is too much

T = TypeVar('T')
Form = TypeVar('Form', bound=schemas.Asked)
Request = requests.Request


class Routes:
  """Some routes of a service.

  Attributes:
    service: answers.
    log: of the requests.
    metrics: of the server.
  """

  def __init__(
    self,
    service: service_lib.Service,
    log: access_log.AccessLog,
    metrics: metrics_lib.Metrics,
  ) -> None:
    self.service = service
    self.log = log
    self.metrics = metrics
    self._threads: anyio.CapacityLimiter | None = None

  async def form(self, form: type[Form], request: Request) -> Form:
    """Reads the body of a request.

    Raises:
      ApiError: it is wrong, or the server is about to end.
    """
    body = await request.body()
    if not self.service.ready:
      raise http_errors.stopping()
    given = schemas.parse(form, body)
    self.service.adapter_of(given.model)  # refuses an unknown one
    return given

  async def compute_in_thread(self, function: Callable[[], T]) -> T:
    """Returns function(), called in threads of their own.

    So those that wait to compute don't hold up the others.
    """
    if self._threads is None:
      most = self.service.options.limits.computing + SPARE
      self._threads = anyio.CapacityLimiter(most)
    return await anyio.to_thread.run_sync(function, limiter=self._threads)


@contextlib.asynccontextmanager
async def while_connected(
  request: Request, metrics: metrics_lib.Metrics
) -> AsyncIterator[None]:
  """Leaves its body when the client leaves; the body must return."""
  body = asyncio.current_task()
  assert body is not None
  left = False

  async def watch():
    nonlocal left
    while (await request.receive())['type'] != 'http.disconnect':
      pass
    left = True
    body.cancel()

  watcher = asyncio.create_task(watch())
  try:
    yield
  except asyncio.CancelledError:
    if not left:
      raise
    body.uncancel()
    metrics.cut.inc()
  finally:
    watcher.cancel()


async def thread(function: Callable[..., T], *arguments: Any) -> T:
  """Returns function(*arguments), called in a thread."""
  return await concurrency.run_in_threadpool(function, *arguments)


def json_response(value: object) -> responses.Response:
  """Returns an answer in JSON; NaN is null."""
  return responses.Response(files.to_json(value), media_type='application/json')
