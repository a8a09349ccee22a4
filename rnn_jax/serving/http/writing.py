"""Routes that write text: /v1/completions and /v1/chat/completions."""

import time
from collections.abc import AsyncIterator
from typing import Any

from starlette import responses
from starlette import types

from rnn_jax.inference import surprise
from rnn_jax.serving.http import answers
from rnn_jax.serving.http import base
from rnn_jax.serving.http import conversations
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import plans
from rnn_jax.serving.http import running as running_lib
from rnn_jax.serving.http import schemas
from rnn_jax.system import files

SMALL = 4096  # bytes of a body that the event loop encodes itself
DONE = 'data: [DONE]\n\n'

Request = base.Request
Response = responses.Response


class Writing(base.Routes):
  """The routes."""

  async def write_completions(self, request: Request) -> Response:
    form = schemas.parse(schemas.Completions, await request.body())
    return await self._write(request, form, plans.of_completions)

  async def write_chat(self, request: Request) -> Response:
    form = schemas.parse(schemas.Chat, await request.body())
    return await self._write(request, form, plans.of_chat)

  async def _write(self, request, form, make_plan):
    """Answers with new text, whole or as a stream."""
    begun, given = time.monotonic(), (self.service, base.owner(request), form)
    if form.reads_more or len(await request.body()) > SMALL:
      plan = await base.thread(make_plan, *given)
    else:
      plan = make_plan(*given)
    self._note_prompts(request, plan)
    answer = answers.Answer(self.service, plan.shape)
    echoed = await self._echo(plan, answer) if plan.echoes else []
    jobs = plan.jobs if plan.writes else ()
    running = running_lib.Running([job.handle for job in jobs], begun)
    written = _Written(self, request, form, plan, answer, running)
    self.service.engine.submit_all(jobs)
    if form.stream:
      return _EventStream(written.events(echoed), running)
    async with base.while_connected(request, self.metrics, running):
      return base.json_response(await written.whole())
    raise http_errors.left()

  def _note_prompts(self, request, plan):
    entry = request.state.entry
    entry['prompt_tokens'] = plan.shape.prompt_tokens
    if self.log.texts:
      tokenizer = self.service.model.bundle.tokenizer
      entry['prompt'] = [tokenizer.decode(job.ids) for job in plan.jobs]

  async def _echo(self, plan, answer):
    """Returns the parts of the prompts, with their log-probabilities."""
    shape, prompts = plan.shape, [job.ids for job in plan.jobs]
    values: list[surprise.Values | None] = [None] * len(prompts)
    if shape.logprobs is not None:
      self.service.check_whole(self.service.name(shape.adapter))
      if not self.service.scores:
        raise http_errors.bad_request(
          'echo with logprobs: the model predicts classes: leave it out', 'echo'
        )
      values = await self.service.compute(
        lambda model: [
          model.scorer.values(ids, shape.logprobs) if len(ids) > 1 else None
          for ids in prompts
        ]
      )
    return await base.thread(answer.echo, prompts, plan.added, values)


class _Written:
  """An answer that is being written."""

  def __init__(self, routes, request, form, plan, answer, running):
    self._routes = routes
    self._entry = request.state.entry
    self._form = form
    self._plan = plan
    self._answer = answer
    self._running = running

  async def whole(self) -> dict[str, Any]:
    """Returns the answer when it is complete."""
    async for number, tokens in self._tokens():
      self._answer.add(number, tokens)
    replies = self._running.replies()
    _, choices = self._answer.end(replies)
    more = await self._end(replies)
    return self._answer.whole(choices, self._answer.usage(replies), **more)

  async def events(self, echoed: list[Any]) -> AsyncIterator[str]:
    """Yields server-sent events; an error after the first is one of them."""
    options = self._form.stream_options
    with_usage = options is not None and options.include_usage
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
      failure = http_errors.explain(error, self._entry)
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
    if not replies:
      return {}
    self._measure(replies)
    owner, kept = self._plan.owner, self._routes.service.conversations
    said = [
      conversations.Conversation(
        job.options.adapter, job.options.state, job.text_ids(choice)
      )
      for job in self._plan.jobs
      for choice in range(job.options.n)
    ]
    kept.remember(owner, self._answer.id, said)
    if self._form.return_state is None:
      return {}
    (reply,) = replies
    if reply.state is None:  # it was ended before its time
      return {'state': None}
    form = self._form.return_state
    return {'state': await base.thread(kept.keep, owner, reply.state, form)}

  def _measure(self, replies):
    entry, metrics = self._entry, self._routes.metrics
    entry['completion_tokens'] = sum(reply.new_tokens for reply in replies)
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
      longest = max(len(x.tokens) for x in reply.completions)
      if timing.ended is not None and longest > 1:
        took = timing.ended - timing.first_token
        metrics.between_tokens.observe(took / (longest - 1))


class _EventStream(responses.StreamingResponse):
  """Server-sent events; whatever ends them ends their requests."""

  def __init__(self, events, running):
    super().__init__(
      events,
      headers={
        'Content-Type': 'text/event-stream; charset=utf-8',
        'X-Accel-Buffering': 'no',
      },
    )
    self._running = running

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    try:
      await super().__call__(scope, receive, send)
    finally:
      if self._running.cancel():
        scope['state']['entry']['status'] = http_errors.CUT
