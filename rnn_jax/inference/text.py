"""How a text is continued: its options, and its tokens as text.

A part of a text ends between characters even if a token ends within one, and
never shows any of a stop string: what may yet become one is held back. The
parts of a row add up to its text, however its tokens were sliced.
"""

import codecs
import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import sampling as sampling_lib

LOW = 2**32 - 1  # bits of a seed


@dataclasses.dataclass(frozen=True)
class Options:
  """How a prompt is continued.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  max_new_tokens: int = 200
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  seed: int = 0  # of 64 bits
  stop: tuple[str, ...] = ()  # the text ends before any of these
  stop_at_boundary: bool = True  # end with the document
  min_new_tokens: int = 0  # before a document may end

  def __post_init__(self):
    self._check(1)

  def _check(self, least):
    if self.max_new_tokens < least:
      errors.refuse('max_new_tokens', self.max_new_tokens, 'give 1 or more')
    if not -(2**63) <= self.seed < 2**63:
      errors.refuse('seed', self.seed, 'give a whole number of 64 bits')
    if not 0 <= self.min_new_tokens <= self.max_new_tokens:
      errors.refuse(
        'min_new_tokens',
        self.min_new_tokens,
        f'give 0 to max_new_tokens={self.max_new_tokens}',
      )
    if '' in self.stop:
      errors.refuse('stop', '', 'an empty string is everywhere: leave it out')

  def line(self, index: int, boundary: int) -> sampling_lib.Rows:
    """Returns a row's line of the table that a program reads.

    Args:
      index: of the row among those of the seed.
      boundary: the token that ends a document.
    """
    return sampling_lib.line(self.sampling)._replace(
      seed_B=self.seed & LOW,
      seed_high_B=self.seed >> 32 & LOW,
      index_B=index,
      limit_B=min(self.max_new_tokens, sampling_lib.MAX_COUNT),
      least_B=min(self.min_new_tokens, sampling_lib.MAX_COUNT),
      boundary_B=boundary if self.stop_at_boundary else -1,
    )


@dataclasses.dataclass(frozen=True)
class Completion:
  """One continuation of a prompt.

  `text` lacks the prompt and the stop string and, of a text that ended before
  its time, what may yet have become one or a character.
  """

  text: str
  tokens: tuple[int, ...]  # all new ones, with the token that ended the text
  logprobs: tuple[float, ...]  # of each, under the model
  reason: str  # why it ended: 'length', 'boundary', 'stop', see serving too
  prompt: str = ''  # of a generator

  @property
  def logprob(self) -> float:
    """Of all its tokens under the model, whatever the sampling."""
    return float(np.sum(self.logprobs, dtype=np.float64))


class Row:
  """A text that is being written.

  Attributes:
    made: tokens that the device has made; the text may lag behind.
    tokens: those that the text has.
    logprobs: of each.
    reason: why it ended; '' until it did.
  """

  def __init__(
    self, tokenizer: tokenizer_lib.Tokenizer, options: Options
  ) -> None:
    self.made = 0
    self.tokens: list[int] = []
    self.logprobs: list[float] = []
    self.reason = ''
    self._limit = options.max_new_tokens
    self._boundary = tokenizer.boundary if options.stop_at_boundary else None
    self._writer = Writer(tokenizer, options.stop)
    self._shown = 0

  def advance(self, tokens: Sequence[int]) -> None:
    """Counts tokens that the device made, and sets `reason` at the end."""
    self.made += len(tokens)
    if len(tokens) and tokens[-1] == self._boundary:
      self.reason = 'boundary'
    elif self.made >= self._limit:
      self.reason = 'length'

  def write(self, tokens: Sequence[int], logprobs: Sequence[float]) -> int:
    """Writes tokens that the device made, up to a stop string.

    Returns:
      How many it wrote.
    """
    count = self._writer.write(tokens)
    self.tokens += tokens[:count]
    self.logprobs += logprobs[:count]
    if self.reason and len(self.tokens) == self.made:
      self._writer.finish()
    if self._writer.stopped:
      self.reason = 'stop'
    return count

  def new_text(self) -> str:
    """Returns the text since the last call."""
    shown, self._shown = self._shown, len(self._writer.text)
    return self._writer.text[shown:]

  def completion(self, reason: str = '', prompt: str = '') -> Completion:
    """Returns the Completion so far; `reason` is why it ends early."""
    return Completion(
      self._writer.text,
      tuple(self.tokens),
      tuple(self.logprobs),
      reason or self.reason,
      prompt,
    )


class Writer:
  """The text of one row.

  Attributes:
    stopped: whether a stop string occurred; nothing after it is read.
    text: all that was written so far.
  """

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer, stop: Iterable[str]):
    self.stopped = False
    self.text = ''
    self._spelled = tokenizer.spelled
    self._stop = tuple(stop)
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
    self._held = ''

  def write(self, tokens: Sequence[int]) -> int:
    """Reads tokens up to a stop string. Returns how many it read."""
    spelled = [self._spelled[token] for token in tokens]
    if not self._stop:
      self._release(self._decoder.decode(b''.join(spelled)))
      return len(tokens)
    for count, raw in enumerate(spelled, 1):
      self._hold(self._decoder.decode(raw))
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
