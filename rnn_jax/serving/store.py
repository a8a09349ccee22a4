"""States of conversations that outlive the process, by id and owner.

    store = store.open_store('runs/demo/states')
    record = store.put('alice', content, tokens=812, model='9f..')
    store.get('alice', record.id)

A state is bytes (serving/states.py writes them); an owner is the name of an API
key. One owner's ids mean nothing to another. There are two places:

    a folder      folder_store.py
    redis://...   redis_store.py, a server that several processes share

Streams of series (stream_store.py) are kept in a folder only.

A state that nobody has read for `days` days is removed; 0 keeps all.
"""

import pathlib

from rnn_jax import errors
from rnn_jax.serving import folder_store
from rnn_jax.serving import records
from rnn_jax.serving import redis_store
from rnn_jax.serving import stream_store

Store = folder_store.FolderStore | redis_store.RedisStore


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
  if place.startswith(('redis://', 'rediss://', 'unix://')):
    return redis_store.RedisStore(place, limits)
  if '://' in place:
    errors.refuse('store', place, 'give a folder, or redis://HOST:PORT/NUMBER')
  return folder_store.FolderStore(pathlib.Path(place), limits)


def open_streams(folder: str) -> stream_store.StreamStore:
  """Opens a folder of streams, which is made if need be.

  Raises:
    InputError: it isn't a folder, can't be used, or another server has it.
  """
  if '://' in folder:
    errors.refuse(
      'store',
      folder.partition('://')[0] + '://...',
      'streams of series are kept in a folder: give one',
    )
  return stream_store.StreamStore(pathlib.Path(folder))
