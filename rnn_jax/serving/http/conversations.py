"""States of conversations as clients have them: by id, or as signed bytes.

A state is kept in a store under an id, or goes to the client. Each owner's are
signed with a key of its own: nobody can use those of another. What an answer
read and wrote is remembered for a while, so that its state can still be made.
"""

import base64
import binascii
import collections
import functools
import hmac
import threading
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import errors
from rnn_jax.serving import records
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import states
from rnn_jax.serving import store as store_lib
from rnn_jax.serving.http import errors as http_errors

RECENT = 1024  # answers whose states can still be made
RECENT_BYTES = 64 * 2**20


class Conversation(NamedTuple):
  """What an answer of an adapter read and wrote, for its state."""

  adapter: str
  state: states.State | None
  ids: np.ndarray


class Conversations:
  """See the module's docstring. Thread-safe."""

  def __init__(
    self,
    name: str,
    served: Callable[[], served_lib.Served | None],
    store: store_lib.Store | None,
    key: bytes,
  ) -> None:
    """Takes where states are.

    Args:
      name: of the model, for clients.
      served: returns the model; None: it writes no text.
      store: of states by id; None: states have no ids.
      key: from which those that sign states follow.
    """
    self._name = name
    self._served = served
    self._store = store
    self._key = key
    self._recent: collections.OrderedDict[tuple[str, str], list[Conversation]]
    self._recent = collections.OrderedDict()
    self._recent_bytes = 0
    self._lock = threading.Lock()

  # Answers that have just ended.

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
      raise http_errors.not_found(
        f'completion={answer[:100]!r}, choice {choice}: it is not among the '
        'last answers: ask with return_state, or read the text again',
        'completion',
      )
    return known[choice]

  def forget(self) -> None:
    """Forgets what `remember` has kept."""
    with self._lock:
      self._recent.clear()
      self._recent_bytes = 0

  # States by id and as bytes.

  @property
  def store(self) -> store_lib.Store:
    """Where states are.

    Raises:
      ApiError: the server has no such place.
    """
    if self._store is None:
      raise http_errors.bad_request(
        "this server keeps no states: ask for form='bytes'", 'state'
      )
    return self._store

  @functools.cached_property
  def state_bytes(self) -> int:
    """The size of a state as it is kept, whatever its length."""
    served = self._served()
    return len(states.dump(served.blank_state(), self._key)) if served else 0

  def open(
    self, owner: str, given: str, served: served_lib.Served
  ) -> states.State:
    """Returns the state that a request names or brings.

    Args:
      owner: who asks.
      given: an id, or base64 of bytes that `keep` returned.
      served: the model, or the adapter, that is to continue it.

    Raises:
      ApiError, InputError: there is none, it is damaged, or of another model
        or owner.
    """
    if records.ID.fullmatch(given):
      _, data = self.store.get(owner, given)
    else:
      try:
        data = base64.b64decode(given, validate=True)
      except (binascii.Error, ValueError):
        errors.refuse(
          'state', given[:40], 'give an id, or the base64 that you were given'
        )
    try:
      return served.load_state(data, self._key_of(owner))
    except errors.InputError as error:
      raise http_errors.bad_request(
        str(error), 'state', 'state_refused'
      ) from None

  def keep(self, owner: str, state: states.State, form: str) -> dict[str, Any]:
    """Returns a state as a response has it.

    Args:
      owner: who may use it.
      state: to keep.
      form: 'id': it is stored; 'bytes': the response has it.

    Raises:
      QuotaError: the owner has too many.
      UnavailableError: the store fails.
    """
    data = states.dump(state, self._key_of(owner))
    if form == 'id':
      record = self.store.put(owner, data, state.count, state.model)
      return self.describe(record)
    record = records.make_record(data, state.count, state.model)
    described = self.describe(record, data)
    del described['id']  # nobody has stored it
    return described

  def describe(
    self, record: records.Record, data: bytes = b''
  ) -> dict[str, Any]:
    """Returns a state as responses list it; with its bytes if they're given."""
    served = self._served()
    adapter = served.name_of(record.model) if served else None
    described = {
      'id': record.id,
      'object': 'state',
      'tokens': record.tokens,
      'bytes': record.size,
      'digest': record.sha256,
      'model': adapter or self._name,  # of old parameters, the model's
      'current': adapter is not None,
      'created': int(record.created),
    }
    if data:
      described['data'] = base64.b64encode(data).decode()
    return described

  def close(self) -> None:
    """Closes the store."""
    if self._store is not None:
      self._store.close()

  def _key_of(self, owner):
    return hmac.digest(self._key, b'owner ' + owner.encode(), 'sha256')


def _size(conversations):
  return sum(
    each.ids.nbytes + (each.state.nbytes if each.state else 0)
    for each in conversations
  )
