"""Answers in OpenAI's forms, whole and in parts.

Beside OpenAI's fields a choice has `stop_reason`, why the engine ended it, and
an answer `seed`, with which it can be had again, and `state` if one was asked
for.
"""

import codecs
import dataclasses
import math
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax.inference import surprise
from rnn_jax.inference import text as text_lib
from rnn_jax.serving import requests
from rnn_jax.serving.http import service as service_lib

MIN_LOGPROB = (
  -9999.0
)  # what OpenAI writes for a log-probability of minus infinity
FINISHED = {
  'boundary': 'stop',
  'stop': 'stop',
  'length': 'length',
  'deadline': 'length',
  'closed': 'length',
  'cancelled': 'length',
}


@dataclasses.dataclass(frozen=True)
class Shape:
  """What an answer is to have.

  Attributes:
    adapter: which writes; '': the model itself.
    n: how many texts of each prompt.
    prompts: how many there are.
    prompt_tokens: of all prompts.
    logprobs: how many of the most likely tokens to report; None: none, and no
      log-probabilities.
    seed: of the sampling.
    chat: whether it is that of a chat.
  """

  adapter: str
  n: int
  prompts: int
  prompt_tokens: int
  logprobs: int | None
  seed: int
  chat: bool


class Answer:
  """An answer, as its tokens come.

  Attributes:
    id: of the answer.
  """

  def __init__(self, service: service_lib.Service, shape: Shape) -> None:
    kind = 'chatcmpl-' if shape.chat else 'cmpl-'
    self.id = kind + secrets.token_hex(12)
    self._shape = shape
    self._service = service
    self._created = int(time.time())
    self._model = service.engine.model(shape.adapter)
    self._texts = [''] * (shape.n * shape.prompts)
    self._logprobs: list[Any] = [self._no_logprobs() for _ in self._texts]
    self._begun = [False] * len(self._texts)
    self._echoed = [0] * len(self._texts)  # characters of the prompts
    self._places = [_Places(0) for _ in self._texts]

  # The prompt.

  def echo(
    self,
    prompts: Sequence[np.ndarray],
    added: Sequence[int],
    values: Sequence[surprise.Values | None],
  ) -> list[Any]:
    """Begins each text with its prompt. Returns the choices' parts.

    Args:
      prompts: ids.
      added: how many of each the client hasn't given.
      values: what the model says of the tokens of each prompt but its first;
        None without log-probabilities.
    """
    parts, n = [], self._shape.n
    for number, ids in enumerate(prompts):
      text = self._model.tokenizer.decode(ids)
      entry = None
      if self._shape.logprobs is not None:
        entry = self._prompt_logprobs(ids, added[number], values[number])
      for index in range(number * n, (number + 1) * n):
        self._places[index] = _Places(len(text))
        self._echoed[index] = len(text)
        self._add(index, text, entry)
        parts.append(self._part(index, text, entry, None))
    return parts

  def _prompt_logprobs(self, ids, added, values):
    entry, places = self._no_logprobs(), _Places(0)
    for n in range(added, len(ids)):
      logprob, best = None, None
      if n:
        logprob = _finite(values.logprob_L[n - 1])
        best = [
          *zip(
            values.top_LxK[n - 1].tolist(),
            map(_finite, values.top_logprob_LxK[n - 1]),
            strict=True,
          )
        ]
      self._append(entry, int(ids[n]), logprob, best, places)
    return entry

  # New tokens.

  def add(
    self, number: int, tokens: Sequence[requests.Token]
  ) -> list[dict[str, Any]]:
    """Reads new tokens of a request. Returns the choices' parts."""
    parts = []
    by_choice: dict[int, list[requests.Token]] = {}
    for token in tokens:
      by_choice.setdefault(token.choice, []).append(token)
    for choice, own in by_choice.items():
      index = number * self._shape.n + choice
      entry = None if self._shape.logprobs is None else self._no_logprobs()
      for token in own:
        if entry is not None:
          best = [(i, _finite(p)) for i, p in token.alternatives]
          places = self._places[index]
          self._append(entry, token.id, _finite(token.logprob), best, places)
      text = ''.join(token.text for token in own)
      self._add(index, text, entry)
      if text or entry is not None:
        parts.append(self._part(index, text, entry, None))
    return parts

  def end(
    self, replies: Sequence[requests.Reply]
  ) -> tuple[list[dict[str, Any]], list[Any]]:
    """Reads the replies; none: no token was wanted.

    Returns:
      (the last parts, the finished choices).
    """
    parts, choices = [], []
    completions = [each for reply in replies for each in reply.completions]
    nothing = [text_lib.Completion('', (), (), 'length')] * len(self._texts)
    completions = completions or nothing
    for index, completion in enumerate(completions):
      shown = len(self._texts[index]) - self._echoed[index]
      rest = completion.text[shown:]
      self._texts[index] += rest
      parts.append(self._part(index, rest, None, completion.reason))
      choices.append(self._choice(index, completion.reason))
    return parts, choices

  # Objects.

  def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Returns a part of a streamed answer."""
    kind = 'chat.completion.chunk' if self._shape.chat else 'text_completion'
    return self._object(kind) | {'choices': choices} | more

  def whole(
    self, choices: list[Any], usage: dict[str, Any], **more: Any
  ) -> dict[str, Any]:
    """Returns an answer."""
    kind = 'chat.completion' if self._shape.chat else 'text_completion'
    rest = {'choices': choices, 'usage': usage}
    return self._object(kind) | rest | more

  def usage(self, replies: Sequence[requests.Reply]) -> dict[str, Any]:
    """Returns how many tokens were read and made."""
    read = self._shape.prompt_tokens
    new = sum(reply.new_tokens for reply in replies)
    cached = sum(reply.cached_tokens for reply in replies)
    return {
      'prompt_tokens': read,
      'completion_tokens': new,
      'total_tokens': read + new,
      'prompt_tokens_details': {'cached_tokens': cached},
    }

  def texts(self) -> list[str]:
    """Returns all texts so far."""
    return [*self._texts]

  def _object(self, kind):
    return {
      'id': self.id,
      'object': kind,
      'created': self._created,
      'model': self._service.name(self._shape.adapter),
      'system_fingerprint': self._model.digest[:16],
      'seed': self._shape.seed,
    }

  def _part(self, index, text, entry, reason):
    end = {'finish_reason': FINISHED.get(reason), 'stop_reason': reason}
    if not self._shape.chat:
      return {'index': index, 'text': text, 'logprobs': entry, **end}
    delta = {'content': text} if text or entry is not None else {}
    if not self._begun[index]:
      self._begun[index] = True
      delta = {'role': 'assistant', 'content': text}
    return {'index': index, 'delta': delta, 'logprobs': entry, **end}

  def _choice(self, index, reason):
    wanted = self._shape.logprobs is not None
    entry = self._logprobs[index] if wanted else None
    end = {'finish_reason': FINISHED[reason], 'stop_reason': reason}
    text = self._texts[index]
    if not self._shape.chat:
      return {'index': index, 'text': text, 'logprobs': entry, **end}
    message = {'role': 'assistant', 'content': text, 'refusal': None}
    return {'index': index, 'message': message, 'logprobs': entry, **end}

  # Log-probabilities.

  def _no_logprobs(self):
    if self._shape.chat:
      return {'content': [], 'refusal': None}
    return {
      'tokens': [],
      'token_logprobs': [],
      'top_logprobs': [],
      'text_offset': [],
    }

  def _append(self, entry, token, logprob, best, places):
    if self._shape.chat:
      entry['content'].append(
        self._named(token, logprob)
        | {'top_logprobs': [self._named(*each) for each in best or ()]}
      )
      return
    entry['tokens'].append(self._token_text(token))
    entry['token_logprobs'].append(logprob)
    raw = self._model.tokenizer.spelled[token]
    entry['text_offset'].append(places.next(raw))
    names = None
    if best is not None:
      # As at OpenAI, the token itself is among them.
      names = {self._token_text(i): p for i, p in best}
      if self._shape.logprobs:
        names.setdefault(self._token_text(token), logprob)
    entry['top_logprobs'].append(names)

  def _token_text(self, token):
    """Returns a token's text, or 'bytes:\\xe2' of incomplete characters."""
    raw = self._model.tokenizer.spelled[token]
    try:
      return raw.decode()
    except UnicodeDecodeError:
      return 'bytes:' + ''.join(f'\\x{byte:02x}' for byte in raw)

  def _named(self, token, logprob):
    return {
      'token': self._token_text(token),
      'logprob': logprob,
      'bytes': [*self._model.tokenizer.spelled[token]],
    }

  def _add(self, index, text, entry):
    self._texts[index] += text
    if entry is None:
      return
    kept = self._logprobs[index]
    for name, values in entry.items():
      if values is not None:
        kept[name].extend(values)


class _Places:
  """Where each token begins in a text: at the character of its first byte."""

  def __init__(self, begin: int) -> None:
    """Takes the place of the text's first token."""
    self._at = begin
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')

  def next(self, raw: bytes) -> int:
    """Returns the place of the next token, of these bytes."""
    begun = self._decoder.getstate()[0]
    first = self._decoder.decode(raw[:1])
    # A character that was cut off is one of its own, U+FFFD.
    place = self._at + (bool(begun) and _is_cut(begun + raw[:1]))
    self._at += len(first) + len(self._decoder.decode(raw[1:]))
    return place


def _is_cut(raw):
  """Whether bytes neither are a character nor begin one."""
  try:
    codecs.getincrementaldecoder('utf-8')().decode(raw)
  except UnicodeDecodeError:
    return True
  return False


def _finite(logprob: Any) -> float | None:
  value = float(logprob)
  return None if math.isnan(value) else max(value, MIN_LOGPROB)
