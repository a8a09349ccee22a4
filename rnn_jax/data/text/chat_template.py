"""A model's chat template: messages become one text, in parts.

    read | written | read | written | ... | read

The template is a program in Jinja's language that comes with a model, run in
Jinja's sandbox as package transformers runs it, in a process with limits
(apart.py). It renders all messages at once, and what the model writes is found
by rendering twice: the text of the messages before a turn of the assistant,
with the prompt for a reply, has to begin the text that includes the turn. The
rest up to the template's end token is written, everything else is read. Marks
within the template aren't needed for that.

A state can't unread: a template that renders a turn in another way once others
follow it, such as one that drops thoughts, is refused.
"""

import functools
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.data.text import apart

USER, ASSISTANT, SYSTEM = 'user', 'assistant', 'system'
SHOWN = 16  # roles, and characters of each, in an error
REMEDY = 'give a template that only appends to what it has rendered'


class Message(NamedTuple):
  """A turn: who says it, and what."""

  role: str
  content: str


QUESTION, ANSWER = Message(USER, 'question'), Message(ASSISTANT, 'answer')


class Template:
  """A chat template.

  Attributes:
    text: its source.
    tokens: special tokens that it writes, by the names that it has for them.
    end: the token that ends what the model writes.
  """

  def __init__(self, text: str, tokens: Mapping[str, str], end: str) -> None:
    self.text = text
    self.tokens = dict(tokens)
    self.end = end

  def spec(self) -> dict[str, Any]:
    """Returns what describes it, JSON-ready; without the end token."""
    return {'text': self.text, 'tokens': self.tokens}

  def render(self, messages: Sequence[Message], reply: bool) -> str:
    """Returns the text of messages; with `reply`, up to where one begins.

    Raises:
      InputError: the template fails or refuses them, with its reason.
    """
    return _render(self.text, self.tokens, messages, reply)

  def parts(
    self, messages: Sequence[Message], reply: bool
  ) -> tuple[list[str], str]:
    """Returns ([read, written, ...], the text after the last written part).

    Args:
      messages: the turns.
      reply: whether the text ends where a reply begins.

    Raises:
      InputError: as `render`; or what is written for a turn doesn't continue
        the prompt, doesn't end with the end token, or depends on later turns.
    """
    whole = self.render(messages, reply)
    parts, at = [], 0
    for n, message in enumerate(messages):
      if message.role != ASSISTANT:
        continue
      before = self.render(messages[:n], True)
      after = self.render(messages[: n + 1], False)
      stop = after.rfind(self.end, len(before)) + len(self.end)
      if not after.startswith(before):
        raise _refused(
          f"the prompt for turn {n} doesn't begin its text", REMEDY
        )
      if stop < len(before) + len(self.end):
        raise _refused(f'turn {n} ends without {self.end!r}', REMEDY)
      if not whole.startswith(after[:stop]):
        raise _refused(f'turn {n} reads otherwise once others follow', REMEDY)
      parts += [whole[at : len(before)], whole[len(before) : stop]]
      at = stop
    return parts, whole[at:]


def find_end(
  text: str, tokens: Mapping[str, str], special: Iterable[str]
) -> str:
  """Returns the special token that ends a reply in the text of a template.

  Raises:
    InputError: there is none, or the template fails for a plain conversation.
  """
  before = _render(text, tokens, [QUESTION], True)
  after = _render(text, tokens, [QUESTION, ANSWER], False)
  if not after.startswith(before):
    raise _refused("the prompt for a reply doesn't begin its text", REMEDY)
  _, said, rest = after[len(before) :].rpartition(ANSWER.content)
  ends = [(rest.find(x), -len(x), x) for x in special if x and x in rest]
  if not said or not ends:
    raise _refused(
      'no special token ends a reply, so none could end', 'write one after it'
    )
  end = min(ends)[2]
  turns = 3 * [QUESTION, ANSWER]
  (_, _, second, _, third, _), _ = Template(text, tokens, end).parts(
    turns, False
  )
  if second != third:
    raise _refused('it counts turns, and a state keeps no count', REMEDY)
  return end


def names(text: str) -> set[str]:
  """Returns the names that a template reads, such as 'bos_token'.

  Raises:
    InputError: it isn't a template.
  """
  return {*_program(text).about['names']}


def _refused(problem, remedy):
  return errors.InputError(f"the model's chat template: {problem}: {remedy}")


def _failed(error, where, remedy):
  """Returns the error of a template that can't be compiled or rendered."""
  remedy = 'give a template that does less' if error.exceeds else remedy
  line = f'line {error.line}: ' if error.line else ''
  return _refused(f'{line}{where}{error}', remedy)


def _render(text, tokens, messages, reply):
  given = [message._asdict() for message in messages]
  size = sum(len(message.content) for message in messages)
  request = {'messages': given, 'reply': reply, 'tokens': {**tokens}}
  try:
    return _program(text).ask(size, request)['text']
  except apart.FailedError as error:
    roles = [message.role[:SHOWN] for message in messages[:SHOWN]]
    where = f'it fails for turns of {roles}: '
    raise _failed(error, where, 'give other turns, or edit it') from error


@functools.lru_cache(maxsize=4)
def _program(text):
  try:
    return apart.Process('template', text)
  except apart.FailedError as error:
    raise _failed(error, '', 'correct it') from error
