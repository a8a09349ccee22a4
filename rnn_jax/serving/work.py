"""A request within an engine: its job, and a row for each completion."""

import time
from collections.abc import Sequence

import numpy as np

from rnn_jax.inference import text as text_lib
from rnn_jax.serving import constraint
from rnn_jax.serving import prefixes
from rnn_jax.serving import requests


class Job:
  """A request from its submission to its reply.

  Attributes:
    ids, options: what is read, and how it is continued.
    handle: of who waits.
    submitted: when, in seconds of time.monotonic.
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
    ids: np.ndarray,
    options: requests.Options,
    matcher: constraint.Matcher | None,
    adapter: int,
  ) -> None:
    self.ids = ids
    self.options = options
    self.adapter = adapter
    self.handle = requests.Handle()
    self.submitted = 0.0
    self.root = b''
    self.base: prefixes.Entry | None = None
    self.read: prefixes.Entry | None = None
    self.key = b''
    self.placed = 0
    self.completions: list[text_lib.Completion | None] = [None] * options.n
    self.cached_tokens = 0
    self.timing = requests.Timing()
    self._matcher = matcher

  def seconds(self) -> float:
    """Returns the seconds since the submission."""
    return time.monotonic() - self.submitted

  def early_end(self) -> str:
    """Returns why the request ends before its time; '' if it doesn't."""
    if self.handle.cancelled:
      return 'cancelled'
    late = self.options.deadline_seconds
    return 'deadline' if late is not None and self.seconds() > late else ''

  def next_row(self, token_bytes: text_lib.TokenBytes) -> 'Row':
    """Returns the row of the next completion."""
    matcher = self._matcher.copy() if self._matcher else None
    self.placed += 1
    return Row(self, self.placed - 1, token_bytes, matcher)

  @property
  def done(self) -> bool:
    """Whether all completions are finished."""
    return None not in self.completions

  def text_ids(self, choice: int) -> np.ndarray:
    """Returns the ids of the prompt and of a finished completion."""
    completion = self.completions[choice]
    assert completion is not None
    return np.concatenate([self.ids, np.array(completion.tokens, np.int32)])


class Row(text_lib.Row):
  """A completion that is being made.

  Attributes:
    job, choice: whose it is.
    ended: whether it gets no more tokens.
    matcher: of a constraint, or None.
  """

  def __init__(
    self,
    job: Job,
    choice: int,
    token_bytes: text_lib.TokenBytes,
    matcher: constraint.Matcher | None,
  ) -> None:
    super().__init__(token_bytes, job.options)
    self.job = job
    self.choice = choice
    self.matcher = matcher
    self.ended = False

  def records(
    self,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    best: Sequence[tuple[tuple[int, float], ...]],
  ) -> tuple[requests.Token, ...]:
    """Writes tokens up to a stop string. Returns the records of those.

    Raises:
      RuntimeError: a token doesn't follow the constraint.
    """
    made = []
    for n, token in enumerate(tokens):
      self.write(tokens[n : n + 1], logprobs[n : n + 1])
      others = best[n] if best else ()
      text = self.new_text()
      made.append(requests.Token(self.choice, token, text, logprobs[n], others))
      if self.reason == 'stop':
        break
    if self.matcher is not None:
      self.matcher.read([record.id for record in made])
    return (*made,)
