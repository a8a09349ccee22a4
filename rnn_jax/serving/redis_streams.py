"""Streams of series in a Redis server: a hash for each, a set of their keys.

    model, state    as of stream_store.py
    part:PLACE      what was read since, from this place on

A write is one transaction. One server has the streams at a time: the one that
opened them last. Each takes a number when it opens them, and a transaction of
another than the last one's is refused, so that a server that is believed dead,
but isn't, writes nothing. How long a write survives is up to the Redis server:
with `appendonly yes` and `appendfsync always` it is on the disk.
"""

import json
from collections.abc import Iterable
from collections.abc import Iterator

from rnn_jax.serving import records
from rnn_jax.serving import redis_server
from rnn_jax.serving import stream_store

SERVER = 'rnn_jax:streams:server'  # the number of the last server
KEYS = 'rnn_jax:streams'
PART = b'part:'


class RedisStreams:
  """See the module's docstring, and stream_store.Store.

  Args:
    url: of the server.

  Raises:
    InputError: it doesn't answer, or its package is not installed.
  """

  def __init__(self, url: str) -> None:
    self._server = redis_server.Server(url)
    with self._server.available() as connection:
      self._number = connection.incr(SERVER)

  def write(
    self,
    model: str,
    states: Iterable[tuple[stream_store.Key, bytes]],
    parts: Iterable[tuple[stream_store.Key, int, bytes]],
    removed: Iterable[stream_store.Key] = (),
  ) -> None:
    """See stream_store.Store."""
    with (
      self._server.available() as connection,
      connection.pipeline(transaction=True) as pipe,
    ):
      try:
        pipe.watch(SERVER)
        if int(pipe.get(SERVER) or 0) != self._number:
          raise self._server.changed
        pipe.multi()
        for key in removed:
          pipe.delete(_hash(key))
          pipe.srem(KEYS, json.dumps(key))
        for key, state in states:
          pipe.delete(_hash(key))
          pipe.hset(_hash(key), mapping={'model': model, 'state': state})
          pipe.sadd(KEYS, json.dumps(key))
        for key, place, part in parts:
          pipe.hset(_hash(key), f'{PART.decode()}{place:020}', part)
        pipe.execute()
      except self._server.changed:
        raise records.UnavailableError(
          'another server has opened these streams: end this one'
        ) from None

  def read(self) -> Iterator[stream_store.Kept]:
    """See stream_store.Store."""
    with self._server.available() as connection:
      keys = sorted(map(json.loads, connection.smembers(KEYS)))
      for owner, name in keys:
        key = owner, name
        fields = connection.hgetall(_hash(key))
        places = sorted(x for x in fields if x.startswith(PART))
        yield stream_store.Kept(
          key,
          fields.get(b'model', b'').decode(),
          fields.get(b'state', b''),
          [fields[place] for place in places],
        )

  def close(self) -> None:
    """See stream_store.Store."""
    self._server.connection.close()


def _hash(key):
  return f'rnn_jax:stream:{json.dumps(key)}'
