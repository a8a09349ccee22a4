"""Requests to the engine, as an event loop waits for them.

The engine calls a listener in its own thread; here that puts the tokens into a
queue of the loop, so that no thread waits for any request.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from collections.abc import Sequence

from rnn_jax.serving import requests
from rnn_jax.serving.http import errors as http_errors


class Running:
  """Requests that belong to one answer.

  Attributes:
    first_token: seconds until the first token of all; None: none yet.
  """

  def __init__(self, handles: Sequence[requests.Handle], begun: float) -> None:
    """Takes requests that are about to be submitted.

    Args:
      handles: theirs.
      begun: when the answer was asked for, in seconds of time.monotonic.
    """
    self.first_token: float | None = None
    self._begun = begun
    self._loop = asyncio.get_running_loop()
    self._queue: asyncio.Queue[tuple[int, tuple[requests.Token, ...], bool]]
    self._queue = asyncio.Queue()
    self._handles = [*handles]
    for n, handle in enumerate(handles):
      handle.listener = self._listener(n)

  def cancel(self) -> bool:
    """Ends what still runs; its slots are free after the engine's step.

    Returns:
      Whether anything did.
    """
    running = [handle for handle in self._handles if not handle.done]
    for handle in running:
      handle.cancel()
    return bool(running)

  async def tokens(self) -> AsyncIterator[tuple[int, list[requests.Token]]]:
    """Yields (number of the request, new tokens) until all have ended.

    Raises:
      ApiError: the time is over before any token.
      Exception: what made a request fail.
    """
    left = len(self._handles)
    while left:
      number, tokens, ended = await self._queue.get()
      left -= ended
      if tokens:
        if self.first_token is None:
          self.first_token = time.monotonic() - self._begun
        yield number, [*tokens]
      if ended:
        self._check(self._handles[number])

  def replies(self) -> list[requests.Reply]:
    """Returns the replies of requests that have ended."""
    return [handle.result(0) for handle in self._handles]

  def _listener(self, number):
    def listen(tokens, ended):
      with contextlib.suppress(RuntimeError):  # the loop has ended
        self._loop.call_soon_threadsafe(
          self._queue.put_nowait, (number, tokens, ended)
        )

    return listen

  def _check(self, handle):
    reply = handle.result(0)
    late = {'deadline', 'closed'} & {x.reason for x in reply.completions}
    if late and not reply.new_tokens:
      if 'closed' in late:
        raise http_errors.stopping()
      raise http_errors.ApiError(
        408,
        'the server had no time for the request: try again later',
        'timeout',
        None,
        'timeout',
        1,
      )
