"""A Redis server, for what outlives a process."""

import contextlib
from collections.abc import Iterator
from typing import Any

from rnn_jax import errors
from rnn_jax.serving import records

SCHEMES = 'redis://', 'rediss://', 'unix://'


class Server:
  """A server that answers.

  Attributes:
    connection: of its package.
    changed: the exception of a transaction whose watched keys have changed.

  Args:
    url: redis://HOST:PORT/NUMBER, rediss:// with TLS.

  Raises:
    InputError: it doesn't answer, or its package is not installed.
  """

  def __init__(self, url: str) -> None:
    try:
      import redis
    except ModuleNotFoundError:
      errors.refuse('store', url, "run pip install 'rnn_jax[redis]'")
    self._error = redis.RedisError
    self.changed = redis.WatchError
    try:
      self.connection: Any = redis.Redis.from_url(
        url, socket_timeout=10, socket_connect_timeout=5
      )
      self.connection.ping()
    except (redis.RedisError, ValueError, OSError) as error:
      # Not the URL: it may have a password.
      raise errors.InputError(
        f'store=redis: {error}: start the server, or give its URL as '
        'redis://HOST:PORT/NUMBER'
      ) from None

  @contextlib.contextmanager
  def available(self) -> Iterator[Any]:
    """Inside it a failure of the connection is an UnavailableError."""
    try:
      yield self.connection
    except (self._error, OSError) as error:
      raise records.UnavailableError(
        f'the store of states fails: {error}'
      ) from error
