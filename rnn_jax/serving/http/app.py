"""The routes: each reads a form, asks the service, and writes an answer.

    app = make(service)        an ASGI application, for uvicorn

GET  /healthz /readyz /metrics    for what starts, feeds and watches the server
GET  /                            the page
GET  /v1/models /v1/status
POST /v1/completions /v1/chat/completions /v1/embeddings     as at OpenAI
POST /v1/score /v1/classify
GET  /v1/states, POST /v1/states, GET and DELETE /v1/states/ID
POST /admin/reload
"""

import asyncio
import base64
import contextlib
import functools
import pathlib
from collections.abc import AsyncIterator
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import TypeVar

import anyio
import anyio.to_thread
import numpy as np
from starlette import applications
from starlette import concurrency
from starlette import exceptions
from starlette import middleware
from starlette import requests as http_requests
from starlette import responses
from starlette import routing
from starlette import staticfiles
from starlette import types
from starlette.middleware import cors as cors_lib

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.inference import surprise
from rnn_jax.serving.http import access_log as access_log_lib
from rnn_jax.serving.http import answers
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import front
from rnn_jax.serving.http import metrics as metrics_lib
from rnn_jax.serving.http import plans
from rnn_jax.serving.http import running as running_lib
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import service as service_lib

PAGE = pathlib.Path(__file__).parents[1] / 'page'
POLICY = (
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
  "'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
  "frame-ancestors 'none'"
)
SMALL = 4096  # characters that the event loop encodes itself
SPARE = 8  # threads that refuse what is too much
DONE = 'data: [DONE]\n\n'

T = TypeVar('T')
Form = TypeVar('Form', bound=schemas.Asked)
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
  routes = _Routes(service, log or access_log_lib.AccessLog(''))
  layers = []
  if origins := tuple(origins):
    layers.append(
      middleware.Middleware(
        cors_lib.CORSMiddleware,
        allow_origins=origins,
        allow_methods=('GET', 'POST', 'DELETE'),
        allow_headers=('Authorization', 'Content-Type'),
      )
    )
  layers.append(
    middleware.Middleware(
      front.Front,
      service=service,
      metrics=routes.metrics,
      log=routes.log,
      hosts=hosts,
    )
  )
  return applications.Starlette(
    routes=routes.table(),
    middleware=layers,
    exception_handlers={
      exceptions.HTTPException: _of_starlette,
      errors.InputError: _of_error,
      http_errors.ApiError: _of_error,
    },
  )


class _Routes:
  """The routes of one service."""

  def __init__(self, service, log):
    self.service = service
    self.log = log
    self.metrics = metrics_lib.Metrics(service.stats)
    self._threads = None

  def table(self):
    """Returns all routes."""
    get, post = ['GET'], ['POST']
    named = (
      ('/healthz', self.health, get),
      ('/readyz', self.ready, get),
      ('/metrics', self.prometheus, get),
      ('/', self.page, get),
      ('/v1/models', self.models, get),
      ('/v1/models/{name}', self.model, get),
      ('/v1/status', self.status, get),
      ('/v1/completions', self.completions, post),
      ('/v1/chat/completions', self.chat, post),
      ('/v1/embeddings', self.embeddings, post),
      ('/v1/score', self.score, post),
      ('/v1/classify', self.classify, post),
      ('/v1/states', self.list_states, get),
      ('/v1/states', self.make_state, post),
      ('/v1/states/{id}', self.state, get),
      ('/v1/states/{id}', self.delete_state, ['DELETE']),
      ('/admin/reload', self.reload, post),
    )
    table: list[Any] = [
      routing.Route(path, function, methods=methods)
      for path, function, methods in named
    ]
    table.append(routing.Mount('/page', _Static(directory=PAGE)))
    return table

  # What surrounds the model.

  async def health(self, request: Request) -> Response:
    del request
    return front.json_response({'status': 'ok'})

  async def ready(self, request: Request) -> Response:
    del request
    if not self.service.ready:
      return front.respond(http_errors.stopping())
    return front.json_response({'status': 'ready'})

  async def prometheus(self, request: Request) -> Response:
    del request
    return Response(
      self.metrics.text(), headers={'Content-Type': metrics_lib.CONTENT_TYPE}
    )

  async def page(self, request: Request) -> Response:
    del request
    return _Static.headed(responses.FileResponse(PAGE / 'index.html'))

  async def models(self, request: Request) -> Response:
    del request
    card = await _thread(self.service.card)
    return front.json_response({'object': 'list', 'data': [card]})

  async def model(self, request: Request) -> Response:
    self.service.check_model(request.path_params['name'])
    return front.json_response(await _thread(self.service.card))

  async def status(self, request: Request) -> Response:
    del request
    stats = self.service.stats()
    if stats is None:
      return front.json_response({'ready': self.service.ready, 'slots': 0})
    return front.json_response(
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
    form = await self._form(schemas.Reload, request)
    step = await _thread(self.service.reload, form.checkpoint)
    return front.json_response({'object': 'reload', 'step': step})

  # Texts.

  async def completions(self, request: Request) -> Response:
    form = await self._form(schemas.Completions, request)
    return await self._write(request, form, plans.of_completions, chat=False)

  async def chat(self, request: Request) -> Response:
    form = await self._form(schemas.Chat, request)
    return await self._write(request, form, plans.of_chat, chat=True)

  async def _write(self, request, form, make_plan, *, chat):
    """Answers with new text, whole or as a stream."""
    owner, entry = request.state.owner.name, request.state.entry
    running = running_lib.Running()

    def begin():
      plan = make_plan(self.service, owner, form)
      answer = answers.Answer(self.service, plan, chat)
      echoed = self._echo(plan, answer) if plan.echo else []
      if plan.writes:
        running.submit(self.service.engine, plan.asked)
      return plan, answer, echoed

    plan, answer, echoed = await self._begin(begin, request, form)
    entry['prompt_tokens'] = sum(map(len, plan.prompts))
    if self.log.texts:
      tokenizer = self.service.engine.tokenizer
      entry['prompt'] = [*map(tokenizer.decode, plan.prompts)]
    writing = _Writing(self, running, plan, answer, entry, form.return_state)
    if form.stream:
      options = form.stream_options
      usage = options is not None and options.include_usage
      return _EventStream(writing.events(echoed, usage), running)
    try:
      async with _while_connected(request, self.metrics):
        return front.json_response(await writing.whole())
    finally:
      running.cancel()
    raise http_errors.ApiError(front.CUT, 'the client has left')

  async def _begin(self, begin, request, form):
    """Calls `begin`, in a thread if that may take long."""
    if getattr(form, 'echo', None):
      return await self._in_computing_thread(begin)
    special = form.state, form.response_format, form.guided_json
    special = any(x is not None for x in (*special, form.guided_regex))
    if special or len(await request.body()) > SMALL:
      return await _thread(begin)
    return begin()

  def _echo(self, plan, answer):
    """Returns the parts of the prompts, with their log-probabilities."""
    values: list[surprise.Values | None] = [None] * len(plan.prompts)
    if plan.logprobs is not None:
      if not self.service.scores:
        raise http_errors.bad_request(
          'echo with logprobs: the model predicts classes: leave it out', 'echo'
        )
      values = self.service.compute(
        lambda model: [
          model.scorer.values(ids, plan.logprobs) if len(ids) > 1 else None
          for ids in plan.prompts
        ]
      )
    return answer.echo(values)

  # Numbers of texts.

  async def embeddings(self, request: Request) -> Response:
    form = await self._form(schemas.Embeddings, request)
    ids = await self._check_texts(form.input)
    features = await self._compute(request, lambda m: m.embed([*form.input]))
    as_text = form.encoding_format == 'base64'
    data = [
      {
        'object': 'embedding',
        'index': n,
        'embedding': base64.b64encode(row.astype('<f4').tobytes()).decode()
        if as_text
        else row.tolist(),
      }
      for n, row in enumerate(np.asarray(features, np.float32))
    ]
    count = request.state.entry['prompt_tokens'] = ids
    return front.json_response(
      {
        'object': 'list',
        'data': data,
        'model': self.service.options.name,
        'usage': {'prompt_tokens': count, 'total_tokens': count},
      }
    )

  async def score(self, request: Request) -> Response:
    form = await self._form(schemas.Score, request)
    if not self.service.scores:
      raise http_errors.bad_request(
        'this model predicts classes: use /v1/classify', code='wrong_endpoint'
      )
    count = await self._check_texts(form.input)

    def compute(model):
      return [
        _scored(n, score, form.tokens)
        for n, score in enumerate(model.score([*form.input], top_k=form.top_k))
      ]

    data = await self._compute(request, compute)
    request.state.entry['prompt_tokens'] = count
    return front.json_response(
      {
        'object': 'list',
        'data': data,
        'model': self.service.options.name,
        'usage': {'prompt_tokens': count, 'total_tokens': count},
      }
    )

  async def classify(self, request: Request) -> Response:
    form = await self._form(schemas.Classify, request)
    if not self.service.classifies:
      raise http_errors.bad_request(
        'this model predicts no classes: use /v1/completions',
        code='wrong_endpoint',
      )
    count = await self._check_texts(form.input)
    predictions = await self._compute(
      request, lambda model: model.predict([*form.input])
    )
    request.state.entry['prompt_tokens'] = count
    return front.json_response(
      {
        'object': 'list',
        'data': [
          {
            'object': 'class',
            'index': n,
            'label': each.label,
            'probabilities': each.probabilities,
            'written': each.written,
          }
          for n, each in enumerate(predictions)
        ],
        'model': self.service.options.name,
      }
    )

  async def _check_texts(self, texts):
    """Returns how many tokens texts have; refuses more than allowed."""
    tokenizer = self.service.model.bundle.tokenizer
    most = self.service.options.limits.prompt_tokens
    counts = await _thread(
      lambda: [len(tokenizer.encode_document(text)) for text in texts]
    )
    for n, count in enumerate(counts):
      if count > most:
        raise http_errors.bad_request(
          f'text {n} has {count:,} tokens, and {most:,} are allowed: give parts '
          'of it',
          f'input.{n}',
          'context_length_exceeded',
        )
    return sum(counts)

  async def _compute(self, request: Request, function: Callable[[Any], T]) -> T:
    del request  # a thread can't be stopped when its client leaves
    return await self._in_computing_thread(
      functools.partial(self.service.compute, function)
    )

  async def _in_computing_thread(self, function):
    """Threads of their own: those that wait don't hold up the others."""
    if self._threads is None:
      most = self.service.options.limits.computing + SPARE
      self._threads = anyio.CapacityLimiter(most)
    return await anyio.to_thread.run_sync(function, limiter=self._threads)

  # States.

  async def list_states(self, request: Request) -> Response:
    store = self.service.stored()
    records = await _thread(store.list, request.state.owner.name)
    data = [self.service.describe(record) for record in records]
    return front.json_response({'object': 'list', 'data': data})

  async def make_state(self, request: Request) -> Response:
    form = await self._form(schemas.NewState, request)
    owner = request.state.owner.name
    running = running_lib.Running()

    def begin():
      asked = plans.of_state(self.service, owner, form)
      running.submit(self.service.engine, (asked,))

    await _thread(begin)
    try:
      async with _while_connected(request, self.metrics):
        async for _ in running.tokens():
          pass
        (reply,) = running.replies()
        if reply.state is None:
          raise http_errors.ApiError(
            408, 'the server had no time for the request', code='timeout'
          )
        return front.json_response(
          await _thread(self.service.keep_state, owner, reply.state, form.form)
        )
    finally:
      running.cancel()
    raise http_errors.ApiError(front.CUT, 'the client has left')

  async def state(self, request: Request) -> Response:
    store = self.service.stored()
    record, data = await _thread(
      store.get, request.state.owner.name, request.path_params['id']
    )
    described = self.service.describe(record)
    described['data'] = base64.b64encode(data).decode()
    return front.json_response(described)

  async def delete_state(self, request: Request) -> Response:
    store, name = self.service.stored(), request.path_params['id']
    await _thread(store.delete, request.state.owner.name, name)
    return front.json_response({'id': name, 'object': 'state', 'deleted': True})

  async def _form(self, form: type[Form], request: Request) -> Form:
    """Reads the body of a request.

    Raises:
      ApiError: it is wrong, or the server is about to end.
    """
    body = await request.body()
    if not self.service.ready:
      raise http_errors.stopping()
    given = schemas.parse(form, body)
    self.service.check_model(given.model)
    return given


class _Writing:
  """An answer that is being written."""

  def __init__(self, routes, running, plan, answer, entry, return_state):
    self._routes = routes
    self._service = routes.service
    self._running = running
    self._plan = plan
    self._answer = answer
    self._entry = entry
    self._return_state = return_state

  async def whole(self) -> dict[str, Any]:
    """Returns the answer when it is complete."""
    async for number, tokens in self._running.tokens():
      self._answer.add(number, tokens)
    replies = self._running.replies()
    _, choices = self._answer.end(replies)
    more = await self._end(replies)
    return self._answer.whole(choices, self._answer.usage(replies), **more)

  async def events(
    self, echoed: list[Any], with_usage: bool
  ) -> AsyncIterator[str]:
    """Yields server-sent events; an error after the first is one of them."""
    usage = {'usage': None} if with_usage else {}
    try:
      for part in echoed:
        yield self._event([part], **usage)
      async for number, tokens in self._running.tokens():
        for part in self._answer.add(number, tokens):
          yield self._event([part], **usage)
      replies = self._running.replies()
      parts, _ = self._answer.end(replies)
      more = await self._end(replies)
      for part in parts:
        last = more if part is parts[-1] else {}
        yield self._event([part], **usage, **last)
      if with_usage:
        yield self._event([], usage=self._answer.usage(replies))
    except Exception as error:  # noqa: BLE001, the status has been sent
      failure = http_errors.of(error)
      if failure is None:
        front.logger.error('%s failed', self._entry['id'], exc_info=error)
        failure = http_errors.ApiError(
          500, 'a defect of the server', 'server_error', None, 'defect'
        )
      self._entry['code'] = failure.code or 'error'
      yield f'data: {files.to_json(failure.body())}\n\n'
    yield DONE

  def _event(self, choices, **more):
    return f'data: {files.to_json(self._answer.chunk(choices, **more))}\n\n'

  async def _end(self, replies):
    """Notes what the answer took. Returns what it has besides its texts."""
    plan, service = self._plan, self._service
    self._measure(replies)
    conversations = [
      service_lib.Conversation(
        request.state,
        np.concatenate(
          [
            plans.after_state(service, request, ids),
            np.array(completion.ids, np.int32),
          ]
        ),
      )
      for request, ids, reply in zip(
        plan.asked, plan.prompts, replies, strict=bool(replies)
      )
      for completion in reply.completions
    ]
    if conversations:
      service.remember(plan.owner, self._answer.id, conversations)
    if self._return_state is None or not replies:
      return {}
    (reply,) = replies
    if reply.state is None:  # it was ended before its time
      return {'state': None}
    kept = await _thread(
      service.keep_state, plan.owner, reply.state, self._return_state
    )
    return {'state': kept}

  def _measure(self, replies):
    entry, metrics = self._entry, self._routes.metrics
    new = sum(reply.new_tokens for reply in replies)
    entry['completion_tokens'] = new
    entry['cached_tokens'] = sum(reply.cached_tokens for reply in replies)
    reasons = [x.reason for reply in replies for x in reply.completions]
    entry['reasons'] = sorted({*reasons})
    if self._routes.log.texts:
      entry['completion'] = self._answer.texts()
    first = self._running.first_token
    if first is not None:
      entry['first_token_seconds'] = round(first, 6)
      metrics.first_token.observe(first)
    for reply in replies:
      timing = reply.timing
      if timing.ended is not None and timing.first_token is not None:
        longest = max(len(x.ids) for x in reply.completions)
        if longest > 1:
          took = timing.ended - timing.first_token
          metrics.between_tokens.observe(took / (longest - 1))


class _EventStream(responses.StreamingResponse):
  """Server-sent events; whatever ends them ends their requests."""

  def __init__(self, events, running):
    super().__init__(
      events,
      headers={'Content-Type': 'text/event-stream; charset=utf-8'},
    )
    self.headers['X-Accel-Buffering'] = 'no'
    self._running = running

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    try:
      await super().__call__(scope, receive, send)
    finally:
      if self._running.cancel():
        scope['state']['entry']['status'] = front.CUT


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


@contextlib.asynccontextmanager
async def _while_connected(request, metrics):
  """Leaves its body when the client leaves; the body must return."""
  body = asyncio.current_task()
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


async def _thread(function: Callable[..., T], *arguments: Any) -> T:
  return await concurrency.run_in_threadpool(function, *arguments)


def _scored(number, score, with_tokens):
  described = {
    'object': 'score',
    'index': number,
    'loss': score.loss,
    'perplexity': score.perplexity,
    'bits_per_byte': score.bits_per_byte,
    'logprob': score.logprob,
    'tokens': score.token_count,
    'bytes': score.byte_count,
  }
  if with_tokens:
    described['each'] = [
      {
        'id': token.id,
        'text': token.text,
        'start': token.start,
        'stop': token.stop,
        'logprob': token.logprob,
        'rank': token.rank,
        'entropy': token.entropy,
        'counted': token.counted,
        'top': [
          {'id': x.id, 'text': x.text, 'logprob': x.logprob} for x in token.top
        ],
      }
      for token in score.tokens()
    ]
  return described


async def _of_starlette(request: Request, error: Any) -> Response:
  """No such route, or another method."""
  del request
  messages = {404: 'there is no such path', 405: 'the path has other methods'}
  message = messages.get(error.status_code, str(error.detail))
  failure = http_errors.ApiError(error.status_code, message)
  response = front.respond(failure)
  response.headers.update(error.headers or {})
  return response


async def _of_error(request: Request, error: Any) -> Response:
  failure = http_errors.of(error)
  if failure.code:
    request.state.entry['code'] = failure.code
  return front.respond(failure)
