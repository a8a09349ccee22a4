"""Routes that write text: /v1/completions and /v1/chat/completions."""

from collections.abc import AsyncIterator
from typing import Any

from starlette import responses
from starlette import types

from rnn_jax.inference import surprise
from rnn_jax.serving import defects
from rnn_jax.serving.http import answers
from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import plans
from rnn_jax.serving.http import running as running_lib
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import service as service_lib
from rnn_jax.system import files

SMALL = 4096  # characters that the event loop encodes itself
DONE = 'data: [DONE]\n\n'

Request = base.Request
Response = responses.Response


class Writing(base.Routes):
  """The routes."""

  async def write_completions(self, request: Request) -> Response:
    form = await self.form(schemas.Completions, request)
    return await self._write(request, form, plans.of_completions)

  async def write_chat(self, request: Request) -> Response:
    form = await self.form(schemas.Chat, request)
    return await self._write(request, form, plans.of_chat)

  async def _write(self, request, form, make_plan):
    """Answers with new text, whole or as a stream."""
    owner, entry = request.state.owner.name, request.state.entry
    running = running_lib.Running()

    def begin():
      plan = make_plan(self.service, owner, form)
      answer = answers.Answer(self.service, plan.shape)
      echoed = self._echo(plan, answer) if plan.shape.echo else []
      if plan.shape.writes:
        running.follow([job.handle for job in plan.jobs])
        self.service.engine.submit_all(plan.jobs)
      return plan, answer, echoed

    plan, answer, echoed = await self._begin(begin, request, form)
    entry['prompt_tokens'] = plan.shape.prompt_tokens
    if self.log.texts:
      tokenizer = self.service.writer().tokenizer
      entry['prompt'] = [tokenizer.decode(job.ids) for job in plan.jobs]
    writing = _Writing(self, running, plan, answer, entry, form)
    if form.stream:
      options = form.stream_options
      usage = options is not None and options.include_usage
      return _EventStream(writing.events(echoed, usage), running)
    try:
      async with base.while_connected(request, self.metrics):
        return base.json_response(await writing.whole())
    finally:
      running.cancel()
    raise http_errors.left()

  async def _begin(self, begin, request, form):
    """Calls `begin`, in a thread if that may take long."""
    if getattr(form, 'echo', None):
      return await self.compute_in_thread(begin)
    special = form.state, form.response_format, form.guided_json
    special = any(x is not None for x in (*special, form.guided_regex))
    if special or len(await request.body()) > SMALL:
      return await base.thread(begin)
    return begin()

  def _echo(self, plan, answer):
    """Returns the parts of the prompts, with their log-probabilities."""
    shape, prompts = plan.shape, [job.ids for job in plan.jobs]
    values: list[surprise.Values | None] = [None] * len(prompts)
    if shape.logprobs is not None:
      self.service.check_whole(self.service.name(shape.adapter))
      if not self.service.scores:
        raise http_errors.bad_request(
          'echo with logprobs: the model predicts classes: leave it out', 'echo'
        )
      values = self.service.compute(
        lambda model: [
          model.scorer.values(ids, shape.logprobs) if len(ids) > 1 else None
          for ids in prompts
        ]
      )
    return answer.echo(prompts, plan.added, values)


class _Writing:
  """An answer that is being written."""

  def __init__(self, routes, running, plan, answer, entry, form):
    self._routes = routes
    self._service = routes.service
    self._running = running
    self._plan = plan
    self._answer = answer
    self._entry = entry
    self._form = form

  async def whole(self) -> dict[str, Any]:
    """Returns the answer when it is complete."""
    async for number, tokens in self._tokens():
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
      async for number, tokens in self._tokens():
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
        defects.log(self._entry['id'], error)
        failure = http_errors.ApiError(
          500, 'a defect of the server', 'server_error', None, 'defect'
        )
      self._entry['code'] = failure.code or 'error'
      yield f'data: {files.to_json(failure.body())}\n\n'
    yield DONE

  async def _tokens(self):
    with plans.naming_constraint(self._form):
      async for each in self._running.tokens():
        yield each

  def _event(self, choices, **more):
    return f'data: {files.to_json(self._answer.chunk(choices, **more))}\n\n'

  async def _end(self, replies):
    """Notes what the answer took. Returns what it has besides its texts."""
    plan, service = self._plan, self._service
    self._measure(replies)
    if replies:
      conversations = [
        service_lib.Conversation(
          plan.shape.adapter, job.options.state, job.text_ids(choice)
        )
        for job in plan.jobs
        for choice in range(job.options.n)
      ]
      service.remember(plan.owner, self._answer.id, conversations)
    if self._form.return_state is None or not replies:
      return {}
    (reply,) = replies
    if reply.state is None:  # it was ended before its time
      return {'state': None}
    kept = await base.thread(
      service.keep_state, plan.owner, reply.state, self._form.return_state
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
        longest = max(len(x.tokens) for x in reply.completions)
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
        scope['state']['entry']['status'] = http_errors.CUT
