"""What the routes ask: one model, its engine, its states, and their limits.

    service = Service(model, Options(name='demo'), engine_options)
    with service.running():
      ...

A Service knows no HTTP but its errors. All of its methods but `running` and
`compute` may be called from any thread.
"""

import asyncio
import contextlib
import dataclasses
import math
import secrets
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import TypeVar

import anyio.to_thread

from rnn_jax import errors
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.inference import series_streams
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import states
from rnn_jax.serving import store as store_lib
from rnn_jax.serving import streams as streams_lib
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import conversations
from rnn_jax.serving.http import errors as http_errors

RELOAD_SECONDS = 600.0

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Limits:
  """What one request may ask for, and how many may wait.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  body_bytes: int = 8 * 2**20
  prompt_tokens: int = 32_768
  new_tokens: int = 4096
  seconds: float = 300.0  # from the request to its last token
  body_seconds: float = 30.0  # until a request has arrived
  owner_requests: int = 0  # that an API key may have at once; 0: any number
  computing: int = 32  # scores, embeddings and classes that may wait

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      least = 0 if field.name == 'owner_requests' else 1e-3
      if not least <= value < math.inf:
        errors.refuse(field.name, value, 'give a number above 0')


@dataclasses.dataclass(frozen=True)
class Options:
  """What a server is besides its model.

  Attributes:
    name: of the model, for clients.
    limits: of requests.
    state_key: signs states that clients keep; b'': a new one at each start.
    adapters: reads those of a model, by their names for clients.
    streams: how streams of series are served.
  """

  name: str
  limits: Limits = Limits()
  state_key: bytes = b''
  adapters: Callable[[model_lib.Model], engine_lib.Adapters] = lambda _: {}
  streams: streams_lib.Options = streams_lib.Options()


class Service:
  """See the module's docstring.

  Attributes:
    options: as given.
    keys: who may ask.
    model: answers.
    adapters: of the model, by name.
    created: when it began to serve, in seconds since 1970.
    ready: whether it serves; False before its start and once it stops.
  """

  def __init__(
    self,
    model: model_lib.Model,
    options: Options,
    engine: engine_lib.Options | None = None,
    store: store_lib.Store | store_lib.StreamStore | None = None,
    keys: auth.Keys | None = None,
    load: Callable[[str | int], model_lib.Model] | None = None,
  ) -> None:
    """Takes a model and what surrounds it.

    Args:
      model: answers.
      options: of the server.
      engine: how it writes text.
      store: of states by id; None: states have no ids. Of a model that
        forecasts series, of streams; None: they end with the process.
      keys: who may ask; None: anyone.
      load: returns the model of a checkpoint, for `reload`; None: no reload.

    Raises:
      InputError: the model reads images, or its adapters can't be served.
    """
    config = model.bundle.config
    if config.task.reads_images:
      errors.refuse(
        'task.name', config.task.name, 'it reads images: use launch.predict'
      )
    if config.task.series_label:
      errors.refuse(
        'task.name', config.task.name, 'it reads series: use launch.predict'
      )
    if config.task.reads_series:
      series_streams.check_forecasts(config)
    elif not config.task.classifies:
      generate.check_writes(config)
    self.options = options
    self.keys = keys or auth.Keys({})
    self.model = model
    self.adapters = options.adapters(model)
    self._check_adapters(config.task)
    self._engine: engine_lib.Engine | None = None
    if config.task.writes_text:
      self._engine = engine_lib.Engine(
        model.generator, engine or engine_lib.Options(), self.adapters
      )
    self._streams: streams_lib.Streams | None = None
    if config.task.reads_series:
      assert not isinstance(store, store_lib.Store)
      self._streams = streams_lib.Streams(
        model.forecaster,
        streams_lib.digest(model.forecaster),
        options.streams,
        store,
      )
      store = None
    assert not isinstance(store, store_lib.StreamStore)
    key = options.state_key or secrets.token_bytes(states.MIN_KEY)
    self._conversations = conversations.Conversations(
      options.name, self.writer, store, key
    )
    self.created = int(time.time())
    self.ready = False
    self._load = load
    self._reloading = threading.Lock()
    self._computing = asyncio.Lock()
    self._waiting = 0  # to compute

  def _check_adapters(self, task):
    if self.adapters and not task.writes_text:
      errors.refuse(
        'adapters', (*self.adapters,), 'only a model that writes text has them'
      )
    if self.options.name in self.adapters:
      errors.refuse(
        'adapters', self.options.name, "it is the model's name: give another"
      )

  # What the model can do.

  @property
  def engine(self) -> engine_lib.Engine:
    """The engine.

    Raises:
      ApiError: the model writes no text.
    """
    if self._engine is None:
      raise self.wrong_endpoint()
    return self._engine

  @property
  def streams(self) -> streams_lib.Streams:
    """The streams of series.

    Raises:
      ApiError: the model forecasts none.
    """
    if self._streams is None:
      raise self.wrong_endpoint()
    return self._streams

  @property
  def conversations(self) -> conversations.Conversations:
    """The states of texts.

    Raises:
      ApiError: the model reads no texts.
    """
    if self.forecasts:
      raise self.wrong_endpoint()
    return self._conversations

  def wrong_endpoint(self) -> http_errors.ApiError:
    """Returns the error of a route that is for other models."""
    does = 'writes text: use /v1/completions'
    if self.forecasts:
      does = 'forecasts series: use /v1/forecast or /v1/streams'
    elif self.classifies:
      does = 'predicts classes: use /v1/classify'
    return http_errors.bad_request(f'this model {does}', None, 'wrong_endpoint')

  def writer(self, adapter: str = '') -> served_lib.Served | None:
    """Returns the model that writes, or an adapter; None: it writes no text."""
    return self._engine.model(adapter) if self._engine else None

  @property
  def classifies(self) -> bool:
    """Whether it predicts classes."""
    return bool(self.model.bundle.config.task.classifies)

  @property
  def forecasts(self) -> bool:
    """Whether it forecasts series."""
    return self._streams is not None

  @property
  def state_bytes(self) -> int:
    """The size of the state of a text or a stream, whatever its length."""
    if self._streams is not None:
      return self._streams.state_bytes
    return self._conversations.state_bytes

  @property
  def scores(self) -> bool:
    """Whether it says how likely a text is."""
    return self._engine is not None and not self.classifies

  def cards(self) -> list[dict[str, Any]]:
    """Returns the model and its adapters as /v1/models lists them."""
    return [self.card(name) for name in ('', *self.adapters)]

  def card(self, adapter: str) -> dict[str, Any]:
    """Returns the model, '', or an adapter as /v1/models/ID shows it."""
    own, written = not adapter, self.writer(adapter)
    source = self.model.bundle if own else self.adapters[adapter]
    return {
      'id': self.name(adapter),
      'object': 'model',
      'created': self.created,
      'owned_by': 'rnn_jax',
      'parent': None if own else self.options.name,
      'step': source.step,
      'digest': written.digest if written else None,
      'capabilities': [
        name
        for name, has in (
          ('completions', written),
          ('chat', written and written.prompts.asks),
          ('embeddings', own and not self.forecasts),
          ('score', own and self.scores),
          ('classify', own and self.classifies),
          ('forecast', self.forecasts),
        )
        if has
      ],
      'classes': [*self.model.classes],
      'vocabulary': self.model.bundle.tokenizer.size,
      'longest': written.prompts.longest if written else None,
      'state_bytes': self.state_bytes,
    } | (self._streams.card() if self._streams else {})

  def stats(self) -> engine_lib.Stats | None:
    """Returns the engine's statistics."""
    return self._engine.stats() if self._engine else None

  def stream_stats(self) -> streams_lib.Stats | None:
    """Returns the statistics of streams."""
    return self._streams.stats() if self._streams else None

  def name(self, adapter: str) -> str:
    """Returns the name for clients of an adapter, or of the model: ''."""
    return adapter or self.options.name

  def adapter_of(self, name: str | None) -> str:
    """Returns the adapter of this name; '' for the model's, or for none.

    Raises:
      ApiError: 404, this server has others.
    """
    if name in (None, self.options.name):
      return ''
    if name not in self.adapters:
      known = ', '.join(map(repr, (self.options.name, *self.adapters)))
      raise http_errors.not_found(
        f'model={name[:100]!r}: this server has {known}', 'model'
      )
    return name

  def check_whole(self, name: str | None) -> None:
    """Checks that a name is the model's own, not that of an adapter.

    Raises:
      ApiError: it isn't.
    """
    if self.adapter_of(name):
      raise http_errors.bad_request(
        f'model={name!r}: an adapter writes text here, and no more: ask '
        f'{self.options.name!r}, or serve the run by itself',
        'model',
        'wrong_endpoint',
      )

  async def compute(self, function: Callable[[model_lib.Model], T]) -> T:
    """Returns function(model), called in a thread: scores, features, classes.

    For an event loop, in which one is called at a time.

    Raises:
      ApiError: 429, too many wait.
    """
    if self._waiting >= self.options.limits.computing:
      raise http_errors.overloaded(
        f'{self._waiting} requests wait, as many as may: try again later'
      )
    self._waiting += 1
    try:
      async with self._computing:
        return await anyio.to_thread.run_sync(function, self.model)
    finally:
      self._waiting -= 1

  # Running.

  @contextlib.contextmanager
  def running(self, drain_seconds: float = 30.0) -> Iterator['Service']:
    """Inside it the engine runs; at the end it drains, and the store closes."""
    runs: contextlib.AbstractContextManager = contextlib.nullcontext()
    for each in (self._engine, self._streams):
      if each is not None:
        runs = each.running(drain_seconds)
    with contextlib.closing(self._conversations), runs:
      self.ready = True
      try:
        yield self
      finally:
        self.ready = False

  def stop(self, drain_seconds: float) -> None:
    """Takes no more requests; returns when those it has are done.

    After `drain_seconds` those that still run end as they are.
    """
    self.ready = False
    for each in (self._engine, self._streams):
      if each is not None:
        each.close(drain_seconds)

  def reload(self, checkpoint: str | int) -> int:
    """Serves the parameters of another checkpoint. Returns its step.

    Requests that have begun end on the old ones; none is dropped.

    Raises:
      InputError: there is no such checkpoint, or it is another model.
      ApiError: another reload is under way, or this server can't reload.
    """
    if self.forecasts:
      raise http_errors.bad_request(
        'streams continue with the parameters that have read them: start '
        'another server'
      )
    if self._load is None:
      raise http_errors.bad_request('this server has no folder to reload from')
    if not self._reloading.acquire(blocking=False):
      raise http_errors.ApiError(
        409, 'a reload is under way: wait for it', code='reloading'
      )
    try:
      model = self._load(checkpoint)
      adapters = self.options.adapters(model)
      if self._engine is not None:
        done = self._engine.reload(model.generator, adapters)
        done.result(RELOAD_SECONDS)
      elif model.bundle.config.model != self.model.bundle.config.model:
        raise errors.InputError('reload: it is another model: start a server')
      self.model, self.adapters = model, adapters
      self._conversations.forget()
      return model.bundle.step
    finally:
      self._reloading.release()
