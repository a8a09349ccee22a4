"""States of conversations that outlive the process, by id and owner.

    store = store.open_store('runs/demo/states')
    record = store.put('alice', content, tokens=812, model='9f..')
    store.get('alice', record.id)

A state is bytes (serving/states.py writes them); an owner is the name of an API
key. One owner's ids mean nothing to another. There are two places:

    a folder      folder_store.py
    redis://...   redis_store.py, a server that several processes share

Streams of series are kept there, too (stream_store.py, redis_streams.py).

A state that nobody has read for `days` days is removed; 0 keeps all.
"""

import pathlib

from rnn_jax import errors
from rnn_jax.serving import folder_store
from rnn_jax.serving import records
from rnn_jax.serving import redis_server
from rnn_jax.serving import redis_store
from rnn_jax.serving import redis_streams
from rnn_jax.serving import stream_store

Store = folder_store.FolderStore | redis_store.RedisStore
StreamStore = stream_store.StreamStore | redis_streams.RedisStreams


def open_store(place: str, limits: records.Limits | None = None) -> Store:
  """Opens a place of states.

  Args:
    place: a folder, which is made if need be, or the URL of a Redis server,
      redis://HOST:PORT/NUMBER (rediss:// with TLS).
    limits: of each owner.

  Raises:
    InputError: the folder can't be used, the server doesn't answer, or its
      package is not installed.
  """
  limits = limits or records.Limits()
  if _is_redis(place):
    return redis_store.RedisStore(place, limits)
  return folder_store.FolderStore(pathlib.Path(place), limits)


def open_streams(place: str) -> StreamStore:
  """Opens a place of streams; arguments as of `open_store`.

  Raises:
    InputError: as `open_store`, or another server has the folder's streams.
  """
  if _is_redis(place):
    return redis_streams.RedisStreams(place)
  return stream_store.StreamStore(pathlib.Path(place))


def _is_redis(place):
  """Returns whether a place is a Redis server, not a folder."""
  redis = place.startswith(redis_server.SCHEMES)
  if '://' in place and not redis:
    errors.refuse('store', place, 'give a folder, or redis://HOST:PORT/NUMBER')
  return redis
