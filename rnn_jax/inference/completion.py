"""What a prompt becomes, slice by slice of new tokens."""

import dataclasses

import numpy as np

from rnn_jax.inference import text as text_lib


@dataclasses.dataclass(frozen=True)
class Completion:
  """What a prompt became."""

  prompt: str
  text: str  # without the prompt and the stop string
  tokens: tuple[int, ...]  # all that were made, with what ended the text
  reason: str  # why it ended: 'length', 'boundary' or 'stop'
  logprob: float  # of these tokens under the model, whatever the sampling


class Row:
  """A prompt on its way through a batch.

  reason: as a completion's; '' while the text has not ended.
  tokens: all that were made so far.
  """

  def __init__(self, prompt, tokenizer, stop, boundary):
    """Takes a text or an array of ids.

    `stop` are the strings and `boundary` the token, or None, that end it.
    """
    self.prompt = prompt
    if isinstance(prompt, np.ndarray):
      self.prompt = tokenizer.decode(prompt)
    self.tokens = []
    self.reason = ''
    self._writer = text_lib.Writer(tokenizer, stop)
    self._logprob = 0.0
    self._shown = 0
    self._boundary = boundary

  def read(self, tokens, logprobs, last):
    """Takes a slice of new tokens, the `last` one or not."""
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

  def news(self):
    """Returns the text since the last call."""
    shown, self._shown = self._shown, len(self._writer.text)
    return self._writer.text[shown:]

  def completion(self):
    """Returns the Completion so far."""
    return Completion(
      self.prompt,
      self._writer.text,
      tuple(self.tokens),
      self.reason,
      self._logprob,
    )
