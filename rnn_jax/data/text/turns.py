"""How the turns of a dialogue become ids, and which of them a model writes.

    boundaries      boundary turn boundary turn boundary ... turn boundary
    chat template   read written read written ...     (chat_template.py)

The tokenizer decides: one that came with a chat template frames turns by it,
any other by boundaries, which know no roles. A dialogue consists of parts, each
of them read or written. Whatever reads turns asks here, so that training,
evaluation and serving see the same ids.

A document is a turn per line, the user's first, or a list of JSON with the role
and the content of each. A turn of such a list may be empty, as a reply or a
system message can be.
"""

import json
from collections.abc import Sequence

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib

Message = chat_template.Message
USER, ASSISTANT = chat_template.USER, chat_template.ASSISTANT
SYSTEM = chat_template.SYSTEM
BEGIN = b'[{"role": '  # of a document of messages, as `dump` writes it
Ids = list[np.ndarray]


class Framing:
  """The framing by boundaries, and the contract of one.

  Attributes:
    begin: ids before the first part.
    end: ids after each part.
    has_roles: whether it matters who says a turn.
  """

  has_roles = False

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer) -> None:
    self._tokenizer = tokenizer
    self.begin = self.end = np.array([tokenizer.boundary], np.int32)

  def is_written(self, part: int) -> bool:
    """Returns whether a part is predicted; others are only read."""
    return part > 0

  def parts(self, messages: Sequence[Message]) -> list[str]:
    """Returns the texts of the parts of a dialogue, up to its last reply.

    Raises:
      InputError: the chat template can't render them.
    """
    return [message.content for message in messages]

  def encode(self, dialogues: Sequence[Sequence[str]]) -> list[Ids]:
    """Returns the ids of each part of each dialogue, without `end`."""
    texts = [text for parts in dialogues for text in parts]
    ids = self._tokenizer.encode_documents(texts)
    return tokenizer_lib.grouped(ids, dialogues)

  def question(self, text: str) -> np.ndarray:
    """Returns what is read before the reply to a text.

    Characters that the vocabulary lacks become its unknown token.
    """
    ids = self._tokenizer.encode_document(text)
    return np.concatenate([self.begin, ids, self.end])

  def prompt(
    self,
    messages: Sequence[Message],
    ended: bool | None = None,
    reply: bool = True,
  ) -> np.ndarray:
    """Returns the ids of turns that a reply follows.

    Args:
      messages: the turns.
      ended: whether the reply before them has its end token, where they follow
        one; None: they begin a dialogue.
      reply: whether the model's turn follows; False: others may.

    Raises:
      InputError: the vocabulary doesn't cover a turn, or the chat template
        can't render them.
    """
    del reply  # turns are framed alike
    ids = [self._tokenizer.encode(message.content) for message in messages]
    framed = [self.begin, *(x for each in ids for x in (each, self.end))]
    return np.concatenate(framed)[int(bool(ended)) :]

  def cleaned(self, messages: Sequence[Message]) -> list[Message]:
    """Returns turns as they are read; one may be empty."""
    return [Message(role, text.strip()) for role, text in messages]


class Chat(Framing):
  """The framing by a chat template."""

  has_roles = True

  def __init__(self, tokenizer: tokenizer_lib.Pretrained) -> None:
    super().__init__(tokenizer)
    assert tokenizer.template is not None
    self._pretrained = tokenizer
    self._template = tokenizer.template
    self._end_token = self.end
    self.begin = self.end = np.zeros(0, np.int32)

  def is_written(self, part: int) -> bool:
    return part % 2 == 1

  def parts(self, messages: Sequence[Message]) -> list[str]:
    return self._template.parts(messages, False)[0]

  def encode(self, dialogues: Sequence[Sequence[str]]) -> list[Ids]:
    return self._pretrained.encode_rendered(dialogues)

  def question(self, text: str) -> np.ndarray:
    return self._joined([Message(USER, text)], None, True)

  def prompt(
    self,
    messages: Sequence[Message],
    ended: bool | None = None,
    reply: bool = True,
  ) -> np.ndarray:
    for message in messages:
      tokenizer_lib.valid(message.content)
    ids = self._joined(messages, ended, reply)
    unknown = self._tokenizer.unknown
    if unknown is not None and unknown in ids:
      for message in messages:
        self._tokenizer.encode(message.content)  # names what it lacks
    return ids

  def cleaned(self, messages: Sequence[Message]) -> list[Message]:
    return [*messages]  # a template strips what it wants stripped

  def _joined(self, messages, ended, reply):
    # What is read after a reply doesn't depend on what was said before.
    before = [chat_template.QUESTION, chat_template.ANSWER]
    before = [] if ended is None else before
    parts, rest = self._template.parts([*before, *messages], reply)
    if not reply:
      rest = self._ended(rest)
    (ids,) = self._pretrained.encode_rendered([[*parts, rest]])
    own = ids[len(before) :]  # as many parts: one is read, one written
    missing = self._end_token[: int(ended is False)]
    return np.concatenate([missing, *own])

  def _ended(self, rest):
    """Returns the text after the last reply, up to the end of its last turn."""
    end = self._template.end
    text, last, after = rest.rpartition(end)
    if after.strip():
      raise errors.InputError(
        "the model's chat template: a turn of the user isn't ended by "
        f'{end!r}, so that no state is between it and another: end with a '
        "turn of role 'assistant'"
      )
    return text + last


def of(tokenizer: tokenizer_lib.Tokenizer) -> Framing:
  """Returns the framing of turns that a tokenizer comes with."""
  if isinstance(tokenizer, tokenizer_lib.Pretrained) and tokenizer.template:
    return Chat(tokenizer)
  return Framing(tokenizer)


def alternate(texts: Sequence[str]) -> list[Message]:
  """Returns turns of the user and the assistant, in turn."""
  roles = USER, ASSISTANT
  return [Message(roles[n % 2], text) for n, text in enumerate(texts)]


def load(document: bytes) -> list[Message]:
  """Returns the turns of a document."""
  text = document.decode()
  if document.startswith(BEGIN):
    try:
      return [Message(x['role'], x['content']) for x in json.loads(text)]
    except (ValueError, KeyError, TypeError):
      pass  # a turn that begins like one
  return alternate([turn for turn in text.split('\n') if turn.strip()])


def dump(messages: Sequence[Message]) -> str:
  """Returns the document of turns."""
  listed = [{'role': role, 'content': text} for role, text in messages]
  return json.dumps(listed, ensure_ascii=False)


def encode_documents(
  tokenizer: tokenizer_lib.Tokenizer, documents: Sequence[bytes]
) -> list[Ids]:
  """Returns the ids of the parts of each document."""
  framing = of(tokenizer)
  return framing.encode([framing.parts(load(each)) for each in documents])
