"""Routes of states: /v1/states."""

import time

from starlette import responses

from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import plans
from rnn_jax.serving.http import running as running_lib
from rnn_jax.serving.http import schemas

Request = base.Request
Response = responses.Response


class States(base.Routes):
  """The routes."""

  async def list_states(self, request: Request) -> Response:
    kept = self.service.conversations
    records = await base.thread(kept.store.list, base.owner(request))
    data = [kept.describe(record) for record in records]
    return base.json_response({'object': 'list', 'data': data})

  async def make_state(self, request: Request) -> Response:
    form = schemas.parse(schemas.NewState, await request.body())
    begun, owner = time.monotonic(), base.owner(request)
    job = await base.thread(plans.of_state, self.service, owner, form)
    running = running_lib.Running([job.handle], begun)
    self.service.engine.submit_all([job])
    async with base.while_connected(request, self.metrics, running):
      async for _ in running.tokens():
        pass
      (reply,) = running.replies()
      if reply.state is None:
        raise http_errors.ApiError(
          408, 'the server had no time for the request', code='timeout'
        )
      keep = self.service.conversations.keep
      return base.json_response(
        await base.thread(keep, owner, reply.state, form.form)
      )
    raise http_errors.left()

  async def state(self, request: Request) -> Response:
    kept, name = self.service.conversations, request.path_params['id']
    found = await base.thread(kept.store.get, base.owner(request), name)
    return base.json_response(kept.describe(*found))

  async def delete_state(self, request: Request) -> Response:
    store, name = self.service.conversations.store, request.path_params['id']
    await base.thread(store.delete, base.owner(request), name)
    return base.json_response({'id': name, 'object': 'state', 'deleted': True})
