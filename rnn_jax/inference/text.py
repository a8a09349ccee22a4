"""Turns tokens into text as they are made.

A part of a text ends between characters even if a token ends within one, and
never shows any of a stop string: what may yet become one is held back. The
parts of a row add up to its text, however its tokens were sliced.
"""

import codecs
import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rnn_jax.data.text import tokenizer as tokenizer_lib


@dataclasses.dataclass(frozen=True)
class Completion:
  """The continuation of a prompt."""

  prompt: str
  text: str  # without the prompt and the stop string
  tokens: tuple[int, ...]  # all new ones, with the token that ended the text
  reason: str  # why it ended: 'length', 'boundary' or 'stop'
  logprob: float  # of these tokens under the model, whatever the sampling


class Decodes(Protocol):
  """What a Writer needs of a tokenizer."""

  def decode_bytes(self, ids: int | Sequence[int]) -> bytes: ...


class Row:
  """A prompt that is being continued in a batch.

  Attributes:
    reason: as a completion's; '' until the text has ended.
    tokens: all new ones so far.
  """

  def __init__(
    self,
    prompt: str | np.ndarray,
    tokenizer: tokenizer_lib.Tokenizer,
    stop: Iterable[str],
    boundary: int | None,
  ):
    """Takes a text or ids; `stop` strings and the token `boundary` end it."""
    if isinstance(prompt, np.ndarray):
      prompt = tokenizer.decode(prompt)
    self.tokens = []
    self.reason = ''
    self._prompt = prompt
    self._writer = Writer(tokenizer, stop)
    self._logprob = 0.0
    self._shown = 0
    self._boundary = boundary

  def read(self, tokens: np.ndarray, logprobs: np.ndarray, last: bool) -> None:
    """Reads a slice of new tokens, the `last` one or not."""
    ids = tokens.tolist()
    ended = self._boundary in ids
    if ended:
      ids = ids[: ids.index(self._boundary) + 1]
    count = self._writer.write(ids)
    if ended or last:
      self._writer.finish()
    self.tokens += ids[:count]
    self._logprob += float(np.sum(logprobs[:count], dtype=np.float64))
    if self._writer.stopped:
      self.reason = 'stop'
    elif ended:
      self.reason = 'boundary'
    elif last:
      self.reason = 'length'

  def new_text(self) -> str:
    """Returns the text since the last call."""
    shown, self._shown = self._shown, len(self._writer.text)
    return self._writer.text[shown:]

  def completion(self) -> Completion:
    """Returns the Completion so far."""
    tokens, text = tuple(self.tokens), self._writer.text
    return Completion(self._prompt, text, tokens, self.reason, self._logprob)


class Writer:
  """The text of one row.

  Attributes:
    stopped: whether a stop string occurred; nothing after it is read.
    text: all that was written so far.
  """

  def __init__(self, tokenizer: Decodes, stop: Iterable[str]):
    self.stopped = False
    self.text = ''
    self._tokenizer = tokenizer
    self._stop = tuple(stop)
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
    self._held = ''

  def write(self, tokens: Sequence[int]) -> int:
    """Reads tokens up to a stop string. Returns how many it read."""
    if not self._stop:
      self._release(self._decoder.decode(self._bytes(tokens)))
      return len(tokens)
    for count, token in enumerate(tokens, 1):
      self._hold(self._decoder.decode(self._bytes(token)))
      if self.stopped:
        return count
    return len(tokens)

  def finish(self) -> None:
    """Writes what was held back; no token follows."""
    if self.stopped:
      return
    rest = self._decoder.decode(b'', final=True)
    if self._stop:
      self._hold(rest)
    if not self.stopped:
      self._release(self._held + ('' if self._stop else rest))

  def _bytes(self, tokens):
    return self._tokenizer.decode_bytes(tokens)

  def _release(self, text):
    self.text += text
    self._held = ''

  def _hold(self, text):
    text = self._held + text
    places = [at for stop in self._stop if (at := text.find(stop)) >= 0]
    if places:
      self.stopped = True
      self._release(text[: min(places)])
      return
    safe = len(text) - self._beginning(text)
    self._release(text[:safe])
    self._held = text[safe:]

  def _beginning(self, text):
    """Returns the length of the longest suffix that begins a stop string."""
    longest = min(len(text), max(map(len, self._stop)) - 1)
    for length in range(longest, 0, -1):
      if any(stop.startswith(text[-length:]) for stop in self._stop):
        return length
    return 0
