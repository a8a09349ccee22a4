"""A request within an engine: its job, and a row for each completion."""

import time
from collections.abc import Sequence

import numpy as np

from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import text as text_lib
from rnn_jax.serving import constraint
from rnn_jax.serving import prefixes
from rnn_jax.serving import requests


class Job:
  """A request from its submission to its reply.

  Attributes:
    request, ids, handle: what is asked, what is read for it, who waits.
    adapter: the number of its adapter; 0: the model itself.
    root: the key of the state that the ids follow (reading.py).
    base: that state; None before the reading begins.
    read: the state after the prompt, and `key` its key; None until it is read.
    placed: completions that have, or had, a slot.
    completions: the finished ones, None in place of others.
    cached_tokens: of the prompt, whose state was stored.
    timing: as in the reply.
  """

  def __init__(
    self,
    request: requests.Request,
    ids: np.ndarray,
    handle: requests.Handle,
    matcher: constraint.Matcher | None,
    adapter: int,
  ) -> None:
    self.request = request
    self.adapter = adapter
    self.ids = ids
    self.handle = handle
    self.root = b''
    self.base: prefixes.Entry | None = None
    self.read: prefixes.Entry | None = None
    self.key = b''
    self.placed = 0
    self.completions: list[requests.Completion | None] = [None] * request.n
    self.cached_tokens = 0
    self.timing = requests.Timing()
    self._matcher = matcher
    self._submitted = time.monotonic()

  def seconds(self) -> float:
    """Returns the seconds since the submission."""
    return time.monotonic() - self._submitted

  def early_end(self) -> str:
    """Returns why the request ends before its time; '' if it doesn't."""
    if self.handle.cancelled:
      return 'cancelled'
    late = self.request.deadline_seconds
    return 'deadline' if late is not None and self.seconds() > late else ''

  def next_row(self, pieces: 'Pieces') -> 'Row':
    """Returns the row of the next completion."""
    matcher = self._matcher.copy() if self._matcher else None
    self.placed += 1
    return Row(self, self.placed - 1, pieces, matcher)

  @property
  def done(self) -> bool:
    """Whether all completions are finished."""
    return None not in self.completions

  def text_ids(self, choice: int) -> np.ndarray:
    """Returns the ids of the prompt and of a finished completion."""
    completion = self.completions[choice]
    assert completion is not None
    return np.concatenate([self.ids, np.array(completion.ids, np.int32)])


class Pieces:
  """The bytes of tokens, as a Writer asks a tokenizer for them, but faster."""

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer) -> None:
    """Takes the tokenizer, whose boundary is `boundary`."""
    self.boundary = tokenizer.boundary
    self._pieces = [tokenizer.decode_bytes([n]) for n in range(tokenizer.size)]

  def decode_bytes(self, ids: int | Sequence[int]) -> bytes:
    """Returns the bytes of one token or several."""
    if isinstance(ids, int):
      return self._pieces[ids]
    return b''.join([self._pieces[n] for n in ids])


class Row:
  """A completion that is being made.

  Attributes:
    job, choice: whose it is.
    made: tokens that the device has made; the text may lag behind.
    reason: why the device ended it; '' until it did.
    ended: whether it gets no more tokens.
    matcher: of a constraint, or None.
    boundary: the token that ends it, where the request says so.
  """

  def __init__(
    self,
    job: Job,
    choice: int,
    pieces: Pieces,
    matcher: constraint.Matcher | None,
  ) -> None:
    self.job = job
    self.choice = choice
    self.matcher = matcher
    self.made = 0
    self.reason = ''
    self.ended = False
    self._ids: list[int] = []
    self._logprobs: list[float] = []
    self._writer = text_lib.Writer(pieces, job.request.stop)
    self._shown = 0
    self.boundary = pieces.boundary

  def advance(self, tokens: Sequence[int]) -> None:
    """Counts tokens that the device made, and sets `reason` at the end."""
    self.made += len(tokens)
    request = self.job.request
    ends = request.stop_at_boundary and len(tokens)
    if ends and tokens[-1] == self.boundary:
      self.reason = 'boundary'
    elif self.made >= request.max_new_tokens:
      self.reason = 'length'

  def write(
    self,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    likeliest: Sequence[tuple[tuple[int, float], ...]],
  ) -> tuple[requests.Token, ...]:
    """Reads tokens up to a stop string. Returns the records of those it read.

    Raises:
      RuntimeError: a token doesn't follow the constraint.
    """
    records = []
    for n, token in enumerate(tokens):
      self._writer.write((token,))
      self._ids.append(token)
      self._logprobs.append(logprobs[n])
      if self.reason and n + 1 == len(tokens):
        self._writer.finish()
      best = likeliest[n] if likeliest else ()
      records.append(
        requests.Token(self.choice, token, self._new_text(), logprobs[n], best)
      )
      if self._writer.stopped:
        self.reason = 'stop'
        break
    if self.matcher is not None:
      self.matcher.read([record.id for record in records])
    return tuple(records)

  def completion(self, reason: str) -> requests.Completion:
    """Returns what was written."""
    return requests.Completion(
      self._writer.text, tuple(self._ids), tuple(self._logprobs), reason
    )

  def _new_text(self):
    shown, self._shown = self._shown, len(self._writer.text)
    return self._writer.text[shown:]
