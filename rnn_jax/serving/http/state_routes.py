"""Routes of states: /v1/states."""

import base64

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
    store = self.service.stored()
    records = await base.thread(store.list, request.state.owner.name)
    data = [self.service.describe(record) for record in records]
    return base.json_response({'object': 'list', 'data': data})

  async def make_state(self, request: Request) -> Response:
    form = await self.form(schemas.NewState, request)
    owner = request.state.owner.name
    running = running_lib.Running()

    def begin():
      job = plans.of_state(self.service, owner, form)
      running.follow([job.handle])
      self.service.engine.submit_all([job])

    await base.thread(begin)
    try:
      async with base.while_connected(request, self.metrics):
        async for _ in running.tokens():
          pass
        (reply,) = running.replies()
        if reply.state is None:
          raise http_errors.ApiError(
            408, 'the server had no time for the request', code='timeout'
          )
        return base.json_response(
          await base.thread(
            self.service.keep_state, owner, reply.state, form.form
          )
        )
    finally:
      running.cancel()
    raise http_errors.left()

  async def state(self, request: Request) -> Response:
    store = self.service.stored()
    record, data = await base.thread(
      store.get, request.state.owner.name, request.path_params['id']
    )
    described = self.service.describe(record)
    described['data'] = base64.b64encode(data).decode()
    return base.json_response(described)

  async def delete_state(self, request: Request) -> Response:
    store, name = self.service.stored(), request.path_params['id']
    await base.thread(store.delete, request.state.owner.name, name)
    return base.json_response({'id': name, 'object': 'state', 'deleted': True})
