"""States in a Redis server, which several machines share.

A state is a key that expires; a hash of each owner has the records.
"""

import dataclasses
import json

from rnn_jax.serving import records
from rnn_jax.serving import redis_server


class RedisStore:
  """See the module's docstring."""

  def __init__(self, url: str, limits: records.Limits) -> None:
    self._limits = limits
    server = redis_server.Server(url)
    self._redis, self._available = server.connection, server.available

  def put(
    self, owner: str, content: bytes, tokens: int, model: str
  ) -> records.Record:
    """See FolderStore."""
    record = records.make_record(content, tokens, model)
    with self._available():
      used = sum(each.size for each in self.list(owner))
      records.check_quota(used + record.size, self._limits)
      pipe = self._redis.pipeline(transaction=True)
      pipe.set(_key(owner, record.id), content, ex=self._seconds())
      fields = json.dumps(dataclasses.asdict(record))
      pipe.hset(_index(owner), record.id, fields)
      pipe.execute()
    return record

  def get(self, owner: str, state_id: str) -> tuple[records.Record, bytes]:
    """See FolderStore."""
    with self._available():
      found = self._redis.hget(_index(owner), state_id)
      content = self._redis.get(_key(owner, state_id))
      if found is None or content is None:
        records.refuse_id(state_id)
      if seconds := self._seconds():
        self._redis.expire(_key(owner, state_id), seconds)
    record = _from_redis(found)
    return record, records.checked(record, content)

  def list(self, owner: str) -> list[records.Record]:
    """See FolderStore."""
    with self._available():
      rows = self._redis.hgetall(_index(owner))
      names = [name.decode() for name in rows]
      pipe = self._redis.pipeline(transaction=False)
      for name in names:
        pipe.exists(_key(owner, name))
      alive = pipe.execute() if names else []
      expired = [n for n, yes in zip(names, alive, strict=True) if not yes]
      if expired:
        self._redis.hdel(_index(owner), *expired)
    known = [_from_redis(row) for row in rows.values()]
    kept = [record for record in known if record.id not in {*expired}]
    return sorted(kept, key=lambda record: (record.created, record.id))

  def delete(self, owner: str, state_id: str) -> None:
    """See FolderStore."""
    with self._available():
      pipe = self._redis.pipeline(transaction=True)
      pipe.delete(_key(owner, state_id))
      pipe.hdel(_index(owner), state_id)
      if not pipe.execute()[0]:
        records.refuse_id(state_id)

  def close(self) -> None:
    """See FolderStore."""
    self._redis.close()

  def _seconds(self):
    days = self._limits.days
    return max(1, round(days * records.DAY)) if days else None


def _index(owner):
  return f'rnn_jax:states:{owner}'


def _key(owner, state_id):
  return f'rnn_jax:state:{owner}:{state_id}'


def _from_redis(row):
  return records.Record(**json.loads(row))
