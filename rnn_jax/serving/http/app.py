"""The routes: each reads a form, asks the service, and writes an answer.

    app = make(service)        an ASGI application, for uvicorn

GET  /healthz /readyz /metrics    for what starts, feeds and watches the server
GET  /                            the page
GET  /openapi.json                what the routes below read
GET  /v1/models /v1/status
POST /v1/completions /v1/chat/completions /v1/embeddings     as at OpenAI
POST /v1/score /v1/classify
GET  /v1/states, POST /v1/states, GET and DELETE /v1/states/ID
POST /v1/forecast
GET and POST /v1/streams, GET, PUT, POST and DELETE /v1/streams/ID
POST /admin/reload
"""

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

from starlette import applications
from starlette import exceptions
from starlette import middleware
from starlette import requests as http_requests
from starlette import responses
from starlette import routing
from starlette import staticfiles
from starlette import types
from starlette.middleware import cors as cors_lib

from rnn_jax import errors
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving.http import access_log as access_log_lib
from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import metrics as metrics_lib
from rnn_jax.serving.http import middleware as middleware_lib
from rnn_jax.serving.http import openapi
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import scoring_routes
from rnn_jax.serving.http import series_routes
from rnn_jax.serving.http import service as service_lib
from rnn_jax.serving.http import state_routes
from rnn_jax.serving.http import writing

PAGE = pathlib.Path(__file__).parents[1] / 'page'
POLICY = (
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
  "'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
  "frame-ancestors 'none'"
)
Request = http_requests.Request
Response = responses.Response


def make(
  service: service_lib.Service,
  log: access_log_lib.AccessLog | None = None,
  hosts: Iterable[str] = (),
  origins: Iterable[str] = (),
) -> applications.Starlette:
  """Returns the application.

  Args:
    service: what answers.
    log: of the requests; None: none.
    hosts: names of this server besides those of the local machine; '*': any.
    origins: pages of other servers that may use this one from a browser.
  """
  log = log or access_log_lib.AccessLog('')
  metrics = metrics_lib.Metrics(service.stats, service.stream_stats)
  layers = []
  if origins := tuple(origins):
    layers.append(
      middleware.Middleware(
        cors_lib.CORSMiddleware,
        allow_origins=origins,
        allow_methods=('GET', 'POST', 'PUT', 'DELETE'),
        allow_headers=('Authorization', 'Content-Type'),
      )
    )
  layers.append(
    middleware.Middleware(
      middleware_lib.Guard,
      service=service,
      metrics=metrics,
      log=log,
      hosts=hosts,
    )
  )
  return applications.Starlette(
    routes=_table(service, log, metrics),
    middleware=layers,
    exception_handlers={
      exceptions.HTTPException: _of_starlette,
      errors.InputError: _of_error,
      http_errors.ApiError: _of_error,
    },
  )


def _table(*shared):
  """Returns all routes of a service."""
  own, texts = _Routes(*shared), writing.Writing(*shared)
  computing = scoring_routes.Scoring(*shared)
  states = state_routes.States(*shared)
  series = series_routes.Series(*shared)
  get, post, delete = ['GET'], ['POST'], ['DELETE']
  named = (
    ('/healthz', own.health, get),
    ('/readyz', own.ready, get),
    ('/metrics', own.prometheus, get),
    ('/', own.page, get),
    ('/openapi.json', own.openapi, get),
    ('/v1/models', own.models, get),
    ('/v1/models/{name}', own.model, get),
    ('/v1/status', own.status, get),
    ('/v1/completions', texts.write_completions, post),
    ('/v1/chat/completions', texts.write_chat, post),
    ('/v1/embeddings', computing.embeddings, post),
    ('/v1/score', computing.score, post),
    ('/v1/classify', computing.classify, post),
    ('/v1/states', states.list_states, get),
    ('/v1/states', states.make_state, post),
    ('/v1/states/{id}', states.state, get),
    ('/v1/states/{id}', states.delete_state, delete),
    ('/v1/forecast', series.forecast, post),
    (openapi.STREAMS, series.list_streams, get),
    (openapi.STREAMS, series.read_all, post),
    (openapi.STREAM, series.stream, get),
    (openapi.STREAM, series.put_stream, ['PUT']),
    (openapi.STREAM, series.read, post),
    (openapi.STREAM, series.delete_stream, delete),
    ('/admin/reload', own.reload, post),
  )
  table: list[Any] = [
    routing.Route(path, function, methods=methods)
    for path, function, methods in named
  ]
  table.append(routing.Mount('/page', _Static(directory=PAGE)))
  return table


class _Routes(base.Routes):
  """What surrounds the model."""

  async def health(self, _: Request) -> Response:
    return base.json_response({'status': 'ok'})

  async def ready(self, _: Request) -> Response:
    if not self.service.ready:
      return http_errors.respond(http_errors.stopping())
    return base.json_response({'status': 'ready'})

  async def prometheus(self, _: Request) -> Response:
    return Response(
      self.metrics.text(), headers={'Content-Type': metrics_lib.CONTENT_TYPE}
    )

  async def page(self, _: Request) -> Response:
    return _Static.headed(responses.FileResponse(PAGE / 'index.html'))

  async def openapi(self, _: Request) -> Response:
    return base.json_response(openapi.describe(self.service.options.name))

  async def models(self, _: Request) -> Response:
    cards = await base.thread(self.service.cards)
    return base.json_response({'object': 'list', 'data': cards})

  async def model(self, request: Request) -> Response:
    adapter = self.service.adapter_of(request.path_params['name'])
    return base.json_response(await base.thread(self.service.card, adapter))

  async def status(self, _: Request) -> Response:
    stats = self.service.stats() or engine_lib.Stats(0, 0, 0, {})
    if (streams := self.service.stream_stats()) is not None:
      return base.json_response(
        {'ready': self.service.ready} | dataclasses.asdict(streams)
      )
    return base.json_response(
      {
        'ready': self.service.ready,
        'slots': stats.slots,
        'active': stats.active,
        'queued': stats.queued,
        'new_tokens': stats.new_tokens,
        'state_bytes': self.service.state_bytes,
        'prefix_states': stats.prefixes.entries,
        'prefix_bytes': stats.prefixes.nbytes,
      }
    )

  async def reload(self, request: Request) -> Response:
    if not request.state.owner.admin:
      raise http_errors.ApiError(
        403,
        'give a key whose line in the file of keys ends with admin',
        code='not_admin',
      )
    form = schemas.parse(schemas.Reload, await request.body())
    step = await base.thread(self.service.reload, form.checkpoint)
    return base.json_response({'object': 'reload', 'step': step})


class _Static(staticfiles.StaticFiles):
  """The page's files."""

  async def get_response(self, path: str, scope: types.Scope) -> Response:
    return self.headed(await super().get_response(path, scope))

  @staticmethod
  def headed(response: Response) -> Response:
    """Returns it with the page's policy."""
    response.headers['Content-Security-Policy'] = POLICY
    response.headers['Cache-Control'] = 'no-cache'
    return response


async def _of_starlette(_: Request, error: Any) -> Response:
  """No such route, or another method."""
  messages = {404: 'there is no such path', 405: 'the path has other methods'}
  message = messages.get(error.status_code, str(error.detail))
  failure = http_errors.ApiError(error.status_code, message)
  response = http_errors.respond(failure)
  response.headers.update(error.headers or {})
  return response


async def _of_error(request: Request, error: Any) -> Response:
  return http_errors.respond(http_errors.explain(error, request.state.entry))
