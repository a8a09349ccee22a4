"""Routes of series of numbers: /v1/forecast and /v1/streams.

Answers have arrays of NumPy, which orjson writes without an object a number.
"""

import asyncio
from typing import Any

import numpy as np
import orjson
from starlette import responses

from rnn_jax import errors
from rnn_jax.inference import series_streams
from rnn_jax.serving import stream_times
from rnn_jax.serving.http import base
from rnn_jax.serving.http import errors as http_errors
from rnn_jax.serving.http import schemas
from rnn_jax.serving.http import series_schemas

Request = base.Request
Response = responses.Response


class Series(base.Routes):
  """The routes."""

  async def forecast(self, request: Request) -> Response:
    streams = self.service.streams
    form = schemas.parse(series_schemas.Forecast, await request.body())
    horizon, levels = self._asked(form)

    def compute(model):
      own = model.forecaster
      left, series = streams.options.readings, []
      for n, each in enumerate(form.series):
        values = series_schemas.numbers(each.readings)
        try:
          made = stream_times.history(
            own, each.id, each.times, values, left, each.besides(horizon)
          )
        except errors.InputError as error:
          raise http_errors.bad_request(
            f'series.{n}: {error}', f'series.{n}'
          ) from None
        left -= len(made.values_NxT)
        series.append(made)
      return own.forecast_all(own.begin_all(series), horizon, levels)

    made = await self.service.compute(compute)
    data = [self._described(each) for each in made]
    return self._answer({'object': 'list', 'data': data})

  async def list_streams(self, request: Request) -> Response:
    streams, owner = self.service.streams, base.owner(request)
    data = []
    for name in streams.ids(owner):
      try:
        data.append(self._about(name, streams.about((owner, name))))
      except errors.InputError as error:
        data.append({'id': name, 'object': 'stream', 'error': str(error)})
    return self._answer({'object': 'list', 'data': data})

  async def put_stream(self, request: Request) -> Response:
    streams, key = self.service.streams, self._key(request)
    form = schemas.parse(series_schemas.NewStream, await request.body())
    asked = self._asked(form)
    history = await base.thread(
      stream_times.history,
      streams.model,
      form.series or key[1],
      form.times,
      series_schemas.numbers(form.readings),
      streams.options.readings,
      form.besides(asked[0]),
    )
    return await self._forecast(request, streams.put(key, history), asked)

  async def read(self, request: Request) -> Response:
    streams, key = self.service.streams, self._key(request)
    form = schemas.parse(series_schemas.Readings, await request.body())
    asked = self._asked(form)
    return await self._forecast(
      request, streams.read(key, *form.each, form.besides(asked[0])), asked
    )

  async def read_all(self, request: Request) -> Response:
    streams, owner = self.service.streams, base.owner(request)
    form = schemas.parse(series_schemas.NextReadings, await request.body())
    asked, names = self._asked(form), [*form.readings]
    done = streams.read_all(
      [(owner, name) for name in names],
      None if form.time is None else [form.time] * len(names),
      series_schemas.numbers(form.readings.values()),
    )
    answers = await asyncio.wrap_future(done)
    entry = request.state.entry
    return await base.thread(self._answer_all, names, answers, asked, entry)

  def _answer_all(self, names, answers, asked, entry):
    """Answers with a forecast, or an error, of each stream."""
    read = [x for x in answers if not isinstance(x, Exception)]
    entry['readings'] = sum(answer.added for answer in read)
    model = self.service.streams.model
    made = iter(model.forecast_all([x.stream for x in read], *asked))
    data = []
    for name, answer in zip(names, answers, strict=True):
      if isinstance(answer, Exception):
        error = http_errors.explain(answer, entry).body()
        data.append({'id': name, 'object': 'stream'} | error)
      else:
        data.append(self._after(name, answer, next(made)))
    return self._answer({'object': 'list', 'data': data})

  async def stream(self, request: Request) -> Response:
    streams, key = self.service.streams, self._key(request)
    stream = streams.get(key)
    places, readings_NxT = stream_times.recent(stream)
    times = stream_times.shown_all(streams.model.frequency, stream, places)
    readings = readings_NxT if streams.model.targets else readings_NxT[:, 0]
    recent = {'times': times, 'readings': readings.tolist()}
    about = self._about(key[1], stream) | {'recent': recent}
    if horizon := streams.model.covariates.reach(stream):
      made = streams.model.forecast(stream, horizon)
      about |= self._described(made, key[1])
    return self._answer(about)

  async def delete_stream(self, request: Request) -> Response:
    streams, key = self.service.streams, self._key(request)
    await asyncio.wrap_future(streams.delete(key))
    return base.json_response(
      {'id': key[1], 'object': 'stream', 'deleted': True}
    )

  async def _forecast(self, request, done, asked):
    """Answers with the forecast of a stream, once it has read."""
    answer = await asyncio.wrap_future(done)
    name = request.path_params['id']
    request.state.entry['readings'] = answer.added
    made = self.service.streams.model.forecast(answer.stream, *asked)
    return self._answer(self._after(name, answer, made))

  def _after(self, name, answer, made):
    """Returns what a stream is after a request, and its forecast."""
    about = self._about(name, answer.stream) | {'added': answer.added}
    return about | self._described(made, name)

  def _key(self, request):
    name = request.path_params['id']
    if not series_schemas.ID.fullmatch(name):
      raise http_errors.bad_request(
        'id: it may have 1 to 128 letters, digits and . _ ~ : -: give such a '
        'one; the name of a series goes into series',
        'id',
      )
    return base.owner(request), name

  def _asked(self, form):
    """Returns (horizon, levels), which the model can forecast."""
    self.service.check_whole(form.model)
    model = self.service.streams.model
    horizon = form.horizon or model.horizon
    levels = tuple(form.quantiles or model.levels)
    model.check(horizon, levels)
    return horizon, levels

  def _about(self, name: str, stream: series_streams.Stream) -> dict[str, Any]:
    """Returns what is known of a stream."""
    grid = self.service.streams.model.frequency
    last = stream_times.shown(grid, stream.start, stream.count - 1)
    return {
      'id': name,
      'object': 'stream',
      'series': stream.name,
      'count': stream.count,
      'last': last,
    }

  def _described(self, made, name=None):
    each = dict.fromkeys(made.targets)
    own = {'targets': {x: _numbers(made.of(x)) for x in each}}
    return {
      'id': made.name if name is None else name,
      'object': 'forecast',
      'times': made.times[: len(made.times) // max(len(each), 1)],
      **(own if each else _numbers(made)),
    }

  def _answer(self, content):
    content |= {'model': self.service.options.name}
    written = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return responses.Response(written, media_type='application/json')


def _numbers(made):
  """Returns the point and the quantiles of a forecast."""
  quantiles_QxH = np.ascontiguousarray(made.quantiles_HxQ.T)
  levels = [f'{level:g}' for level in made.levels]
  return {
    'point': np.ascontiguousarray(made.point_H),
    'quantiles': dict(zip(levels, quantiles_QxH, strict=True)),
  }
