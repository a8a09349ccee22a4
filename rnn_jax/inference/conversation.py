"""A conversation: the model's state carries over from turn to turn.

    conversation = Conversation(generator, options)
    print(conversation.say('Hello .'))

Each turn is read once, however long the conversation is, and only the state is
kept, which is constant in size. A state can't be cut short, so those before the
last KEPT turns are kept, too, in a ring: `back` takes a turn back, and `again`
answers it otherwise, without reading what was before. `reply` answers a
conversation that is given whole, in one pass.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import generate
from rnn_jax.inference import text as text_lib

KEYS = 'role', 'content'  # of a message
ROLES = turns.SYSTEM, turns.USER, turns.ASSISTANT
KEPT = 16  # turns that can be taken back


def reply(
  generator: generate.Generator,
  messages: Sequence[Mapping[str, str]],
  options: generate.Options,
) -> text_lib.Completion:
  """Returns the reply to the last of a conversation's messages.

  Args:
    generator: of a model that was trained on turns.
    messages: dicts with 'role', one of ROLES, and 'content', the last one not
      the assistant's.
    options: of the reply.

  Raises:
    InputError: the model wasn't trained on turns, a message is malformed, the
      vocabulary doesn't cover one, or learned positions the conversation.
  """
  generator.prompts.check_asks()
  _check_no_stop(options)
  ids = generator.prompts.encode_turns(parsed(messages))
  return generator.generate([ids], options).completions[0]


def parsed(messages: Sequence[Mapping[str, str]]) -> list[turns.Message]:
  """Returns messages that a reply may follow.

  Raises:
    InputError: one is malformed, there is none, or the last is a reply.
  """
  if isinstance(messages, (str, bytes, Mapping)) or not messages:
    errors.refuse(
      'messages', messages, "give a list of {'role': ..., 'content': ...}"
    )
  known = []
  for n, message in enumerate(messages):
    if not isinstance(message, Mapping) or {*message} != {*KEYS}:
      _refuse(n, message, f'give a dict with the keys {KEYS}')
    role, content = (message[key] for key in KEYS)
    if role not in ROLES:
      _refuse(n, role, f'its role is one of {ROLES}')
    if not isinstance(content, str):
      _refuse(n, content, 'its content is a text')
    known.append(turns.Message(role, content))
  if known[-1].role == turns.ASSISTANT:
    _refuse(len(known) - 1, turns.ASSISTANT, 'end with what it replies to')
  return known


def _refuse(number, value, remedy):
  raise errors.InputError(f'messages[{number}]={value!r:.200}: {remedy}')


def _check_no_stop(options):
  if options.stop:
    errors.refuse(
      'stop', options.stop, 'a reply ends with its boundary: leave it out'
    )


class _Before(NamedTuple):
  """What a turn followed, and the turn."""

  state: Any
  ended: bool | None  # whether the reply before has its end; None: none is
  turn: str


class Conversation:
  """Turns of a person and a model that was trained on dialogues."""

  def __init__(self, generator: generate.Generator, options: generate.Options):
    """Begins a conversation; `options` are for each reply.

    Raises:
      InputError: the model wasn't trained on turns or has learned positions,
        or there is a stop string.
    """
    generator.prompts.check_asks()
    if longest := generator.prompts.longest:
      raise errors.InputError(
        f'the model has learned positions for {longest} tokens, and '
        "a conversation has no end: train one with model.positions='sinusoidal'"
      )
    _check_no_stop(options)
    self._generator = generator
    self._options = options
    self.reset()

  def reset(self) -> None:
    """Forgets all turns."""
    self._state = self._generator.begin(self._options)
    self._ended: bool | None = None  # whether the last reply has its end
    self._replies = 0  # with those that were taken back
    self._before: collections.deque[_Before]
    self._before = collections.deque(maxlen=KEPT)

  def say(
    self, turn: str, listener: Callable[[int, str], None] | None = None
  ) -> str:
    """Reads a turn and returns the reply.

    Args:
      turn: what the person says.
      listener: see `Generator.generate`.

    Raises:
      InputError: the turn is empty, or the vocabulary doesn't cover it; the
        conversation is unchanged.
    """
    if not turn.strip():
      errors.refuse('turn', turn, 'it must not be empty: give a text')
    said = [turns.Message(turns.USER, turn)]
    ids = self._generator.prompts.encode_turns(said, self._ended)
    before = _Before(self._state, self._ended, turn)
    self._state, completion = self._generator.extend(
      self._state, ids, self._replies, self._options, listener
    )
    self._before.append(before)
    self._replies += 1
    self._ended = completion.reason == 'boundary'  # else it was cut off
    return completion.text

  def back(self) -> str:
    """Takes the last turn and its reply back. Returns the turn.

    Raises:
      InputError: there is none, or it is more than KEPT turns ago.
    """
    if not self._before:
      raise errors.InputError(
        f'back: no turn is left to take back (the last {KEPT} are kept): say '
        'something'
      )
    self._state, self._ended, turn = self._before.pop()
    return turn

  def again(self, listener: Callable[[int, str], None] | None = None) -> str:
    """Returns another reply to the last turn, in place of the one it has.

    Args:
      listener: see `Generator.generate`.

    Raises:
      InputError: as `back`.
    """
    return self.say(self.back(), listener)
