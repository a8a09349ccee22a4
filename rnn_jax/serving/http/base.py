"""What all routes share: the service, threads, and clients that leave.

A thread that computes can't be stopped when its client leaves; a request to the
engine can, and `while_connected` notices.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from collections.abc import Callable
from typing import Any
from typing import TypeVar

from starlette import concurrency
from starlette import requests
from starlette import responses

from rnn_jax.serving.http import access_log
from rnn_jax.serving.http import metrics as metrics_lib
from rnn_jax.serving.http import running as running_lib
from rnn_jax.serving.http import service as service_lib
from rnn_jax.system import files

T = TypeVar('T')
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


def owner(request: Request) -> str:
  """Returns the name of who asks."""
  return request.state.owner.name


@contextlib.asynccontextmanager
async def while_connected(
  request: Request, metrics: metrics_lib.Metrics, running: running_lib.Running
) -> AsyncIterator[None]:
  """Leaves its body when the client leaves; the body must return.

  What is still running at its end is cancelled.
  """
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
    running.cancel()


async def thread(function: Callable[..., T], *arguments: Any) -> T:
  """Returns function(*arguments), called in a thread."""
  return await concurrency.run_in_threadpool(function, *arguments)


def json_response(value: object) -> responses.Response:
  """Returns an answer in JSON; NaN is null."""
  return responses.Response(files.to_json(value), media_type='application/json')
