"""What the routes ask: one model, its engine, its states, and their limits.

    service = Service(model, Options(name='demo'), engine_options)
    with service.running():
      ...

A Service knows no HTTP but its errors. All of its methods but `running` may be
called from any thread; those that compute outside of the engine (scores,
embeddings, classes) run one at a time.
"""

import base64
import binascii
import collections
import contextlib
import dataclasses
import functools
import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import generate
from rnn_jax.inference import model as model_lib
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import states
from rnn_jax.serving import store as store_lib
from rnn_jax.serving.http import auth
from rnn_jax.serving.http import errors as http_errors

RECENT = 1024  # answers whose states can still be made
RECENT_BYTES = 64 * 2**20
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
  """

  name: str
  limits: Limits = Limits()
  state_key: bytes = b''
  adapters: Callable[[model_lib.Model], engine_lib.Adapters] = lambda _: {}


class Conversation(NamedTuple):
  """What an answer of an adapter read and wrote, for its state."""

  adapter: str
  state: states.State | None
  ids: np.ndarray


class Service:
  """See the module's docstring.

  Attributes:
    options: as given.
    keys: who may ask.
    engine: None of a model that writes no text.
    adapters: of the model, by name.
    created: when it began to serve, in seconds since 1970.
    ready: whether it serves; False before its start and once it stops.
  """

  def __init__(
    self,
    model: model_lib.Model,
    options: Options,
    engine: engine_lib.Options | None = None,
    store: store_lib.Store | None = None,
    keys: auth.Keys | None = None,
    load: Callable[[str | int], model_lib.Model] | None = None,
  ) -> None:
    """Takes a model and what surrounds it.

    Args:
      model: answers.
      options: of the server.
      engine: how it writes text.
      store: of states by id; None: states have no ids.
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
    if not config.task.classifies:
      generate.check_writes(config)
    self.options = options
    self.keys = keys or auth.Keys({})
    self.engine: engine_lib.Engine | None = None
    self.adapters = options.adapters(model)
    self._check_adapters(config.task)
    if config.task.writes_text:
      self.engine = engine_lib.Engine(
        model.generator, engine or engine_lib.Options(), self.adapters
      )
    self.store = store
    self.created = int(time.time())
    self.ready = False
    self.model = model
    self._load = load
    self._key = options.state_key or secrets.token_bytes(states.MIN_KEY)
    self._recent: collections.OrderedDict[tuple[str, str], list[Conversation]]
    self._recent = collections.OrderedDict()
    self._recent_bytes = 0
    self._lock = threading.Lock()
    self._computing = threading.Lock()
    self._waiting = 0
    self._reloading = threading.Lock()

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

  def writer(self, adapter: str = '') -> served_lib.Served:
    """Returns the model that writes, or one of its adapters.

    Raises:
      ApiError: the model writes no text.
    """
    return self.writing_engine.model(adapter)

  @property
  def writing_engine(self) -> engine_lib.Engine:
    """The engine.

    Raises:
      ApiError: the model writes no text.
    """
    if self.engine is None:
      raise http_errors.bad_request(
        'this model predicts classes: use /v1/classify', None, 'wrong_endpoint'
      )
    return self.engine

  @property
  def writes(self) -> bool:
    """Whether it continues texts."""
    return self.engine is not None

  def chats(self, adapter: str = '') -> bool:
    """Returns whether it, or an adapter, was trained on turns."""
    return self.engine is not None and self.engine.model(adapter).asks

  @property
  def classifies(self) -> bool:
    """Whether it predicts classes."""
    return bool(self.model.bundle.config.task.classifies)

  @property
  def scores(self) -> bool:
    """Whether it says how likely a text is."""
    return self.writes and not self.classifies

  @functools.cached_property
  def state_bytes(self) -> int:
    """The size of a conversation's state as it is kept, whatever its length."""
    if self.engine is None:
      return 0
    served = self.engine.model()
    network = served.generator.model
    shapes = jax.eval_shape(lambda: network.apply({}, 1, method='init_state'))
    blank = states.State(
      model=served.digest,
      text='0' * len(served.digest),
      count=0,
      ended=False,
      leaves=tuple(np.zeros(x.shape, x.dtype) for x in jax.tree.leaves(shapes)),
      logits_1xV=np.zeros((1, network.vocabulary), np.float32),
    )
    return len(states.dump(blank, self._key))

  def cards(self) -> list[dict[str, Any]]:
    """Returns the model and its adapters as /v1/models lists them."""
    return [self.card(name) for name in ('', *self.adapters)]

  def card(self, adapter: str) -> dict[str, Any]:
    """Returns the model, '', or an adapter as /v1/models/ID shows it."""
    own = not adapter
    written = self.engine.model(adapter) if self.engine else None
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
          ('completions', self.writes),
          ('chat', self.chats(adapter)),
          ('embeddings', own),
          ('score', own and self.scores),
          ('classify', own and self.classifies),
        )
        if has
      ],
      'classes': [*self.model.classes],
      'vocabulary': self.model.bundle.tokenizer.size,
      'longest': written.generator.longest if written else None,
      'state_bytes': self.state_bytes,
    }

  def stats(self) -> engine_lib.Stats | None:
    """Returns the engine's statistics."""
    return self.engine.stats() if self.engine else None

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
      raise http_errors.ApiError(
        404,
        f'model={name[:100]!r}: this server has {known}',
        http_errors.BAD,
        'model',
        'model_not_found',
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

  # Running.

  @contextlib.contextmanager
  def running(self, drain_seconds: float = 30.0) -> Iterator['Service']:
    """Inside it the engine runs; at the end it drains, and the store closes."""
    try:
      with contextlib.ExitStack() as stack:
        if self.engine is not None:
          stack.enter_context(self.engine.running(drain_seconds))
        self.ready = True
        yield self
        self.ready = False
    finally:
      self.ready = False
      if self.store is not None:
        self.store.close()

  def stop(self, drain_seconds: float) -> None:
    """Takes no more requests; returns when those it has are done.

    After `drain_seconds` those that still run end as they are.
    """
    self.ready = False
    if self.engine is not None:
      self.engine.close(drain_seconds)

  def reload(self, checkpoint: str | int) -> int:
    """Serves the parameters of another checkpoint. Returns its step.

    Requests that have begun end on the old ones; none is dropped.

    Raises:
      InputError: there is no such checkpoint, or it is another model.
      ApiError: another reload is under way, or this server can't reload.
    """
    if self._load is None:
      raise http_errors.bad_request('this server has no folder to reload from')
    if not self._reloading.acquire(blocking=False):
      raise http_errors.ApiError(
        409, 'a reload is under way: wait for it', code='reloading'
      )
    try:
      model = self._load(checkpoint)
      adapters = self.options.adapters(model)
      if self.engine is not None:
        done = self.engine.reload(model.generator, adapters)
        done.result(RELOAD_SECONDS)
      elif model.bundle.config.model != self.model.bundle.config.model:
        raise errors.InputError('reload: it is another model: start a server')
      with self._lock:
        self.model, self.adapters = model, adapters
        self._recent.clear()
        self._recent_bytes = 0
      return model.bundle.step
    finally:
      self._reloading.release()

  # What is computed outside of the engine.

  def compute(self, function: Callable[[model_lib.Model], T]) -> T:
    """Returns function(model), one at a time.

    Raises:
      ApiError: 429, too many wait.
    """
    with self._lock:
      if self._waiting >= self.options.limits.computing:
        raise http_errors.overloaded(
          f'{self._waiting} requests wait, as many as may: try again later'
        )
      self._waiting += 1
    try:
      with self._computing:
        return function(self.model)
    finally:
      with self._lock:
        self._waiting -= 1

  # Conversations that have just ended.

  def remember(
    self, owner: str, answer: str, conversations: list[Conversation]
  ) -> None:
    """Keeps what an answer's states are made of; the oldest are forgotten."""
    with self._lock:
      self._recent[owner, answer] = conversations
      self._recent_bytes += _size(conversations)
      while self._recent and (
        len(self._recent) > RECENT or self._recent_bytes > RECENT_BYTES
      ):
        _, oldest = self._recent.popitem(last=False)
        self._recent_bytes -= _size(oldest)

  def recall(self, owner: str, answer: str, choice: int) -> Conversation:
    """Returns what `remember` has kept.

    Raises:
      ApiError: 404, it is unknown, another owner's, or too old.
    """
    with self._lock:
      known = self._recent.get((owner, answer), [])
    if choice >= len(known):
      raise http_errors.ApiError(
        404,
        f'completion={answer[:100]!r}, choice {choice}: it is not among the '
        f'last answers: ask with return_state, or read the text again',
        http_errors.BAD,
        'completion',
        'completion_not_found',
      )
    return known[choice]

  # States by id and as bytes.

  def open_state(self, owner: str, given: str, adapter: str) -> states.State:
    """Returns the state that a request names or brings.

    Args:
      owner: who asks.
      given: an id, or base64 of bytes that `keep_state` returned.
      adapter: which is to continue it; '': the model itself.

    Raises:
      ApiError, InputError: there is none, it is damaged, or of another model
        or owner.
    """
    if store_lib.ID.fullmatch(given):
      data = self.stored().get(owner, given)[1]
    else:
      try:
        data = base64.b64decode(given, validate=True)
      except (binascii.Error, ValueError):
        errors.refuse(
          'state', given[:40], 'give an id, or the base64 that you were given'
        )
    try:
      return self.writer(adapter).load_state(data, self._owner_key(owner))
    except errors.InputError as error:
      raise http_errors.bad_request(
        str(error), 'state', 'state_refused'
      ) from None

  def keep_state(
    self, owner: str, state: states.State, form: str
  ) -> dict[str, Any]:
    """Returns a state as a response has it.

    Args:
      owner: who may use it.
      state: to keep.
      form: 'id': it is stored; 'bytes': the response has it.

    Raises:
      QuotaError: the owner has too many.
      UnavailableError: the store fails.
    """
    data = states.dump(state, self._owner_key(owner))
    if form == 'bytes':
      return {
        'object': 'state',
        'data': base64.b64encode(data).decode(),
        'tokens': state.count,
        'bytes': len(data),
        'model': self._name_of(state.model),
        'created': int(time.time()),
      }
    record = self.stored().put(owner, data, state.count, state.model)
    return self.describe(record)

  def describe(self, record: store_lib.Record) -> dict[str, Any]:
    """Returns a stored state as responses list it."""
    return {
      'id': record.id,
      'object': 'state',
      'tokens': record.tokens,
      'bytes': record.size,
      'digest': record.sha256,
      'model': self._name_of(record.model),
      'current': self._adapter_of(record.model) is not None,
      'created': int(record.created),
    }

  def _name_of(self, digest):
    """Returns for clients whose digest it is; of old ones, the model's name."""
    return self.name(self._adapter_of(digest) or '')

  def _adapter_of(self, digest):
    """Returns the adapter of a digest, '': the model, None: an old one."""
    return self.engine.model().name_of(digest) if self.engine else None

  def stored(self) -> store_lib.Store:
    """Returns the store.

    Raises:
      ApiError: the server has none.
    """
    if self.store is None:
      raise http_errors.bad_request(
        "this server keeps no states: ask for form='bytes'", 'state'
      )
    return self.store

  def _owner_key(self, owner: str) -> bytes:
    """A key for each owner: nobody can use bytes of another."""
    return hmac.digest(self._key, b'owner ' + owner.encode(), 'sha256')


def _size(conversations):
  return sum(
    each.ids.nbytes + (each.state.nbytes if each.state else 0)
    for each in conversations
  )
