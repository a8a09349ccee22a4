"""From tokens to text, piece by piece.

A piece ends between characters even where a token ends within one, and no
piece shows anything of a stop string: what may yet become one is held back.
The pieces of a row make up its text, however its tokens were cut in slices.
"""

import codecs
from collections.abc import Iterable

from rnn_jax.data import tokenizer as tokenizer_lib


class Writer:
  """The text of one row.

  stopped: whether a stop string was met; nothing is read behind it.
  text: all that was written so far.
  """

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer, stop: Iterable[str]):
    self.stopped = False
    self.text = ''
    self._tokenizer = tokenizer
    self._stop = tuple(stop)
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
    self._held = ''

  def write(self, tokens) -> int:
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
    found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
    if found:
      self.stopped = True
      self._release(text[: min(found)])
      return
    safe = len(text) - self._beginning(text)
    self._release(text[:safe])
    self._held = text[safe:]

  def _beginning(self, text):
    """Length of the longest end of `text` that begins a stop string."""
    longest = min(len(text), max(map(len, self._stop)) - 1)
    for length in range(longest, 0, -1):
      if any(stop.startswith(text[-length:]) for stop in self._stop):
        return length
    return 0
