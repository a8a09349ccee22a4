"""A conversation: the model's state carries over from turn to turn.

    conversation = Conversation(generator, options)
    print(conversation.say('Hello .'))

Each turn is read once, however long the conversation is, and only the state is
kept, which is constant in size.
"""

from collections.abc import Callable

from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import generate


class Conversation:
  """Turns of a person and a model that was trained on dialogues."""

  def __init__(self, generator: generate.Generator, options: generate.Options):
    """Begins a conversation; `options` are for each reply.

    Raises:
      InputError: the model wasn't trained on turns or has learned positions,
        or there is a stop string.
    """
    generator.check_asks()
    if generator.longest:
      raise errors.InputError(
        f'the model has learned positions for {generator.longest} tokens, and '
        "a conversation has no end: train one with model.positions='sinusoidal'"
      )
    if options.stop:
      errors.refuse(
        'stop', options.stop, 'a reply ends with its boundary: leave it out'
      )
    self._generator = generator
    self._options = options
    self.reset()

  def reset(self) -> None:
    """Forgets all turns."""
    self._carry = self._generator.begin(self._options)
    self._ended: bool | None = None  # whether the last reply has its end

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
      errors.refuse('turn', turn, 'say something')
    framing = self._generator.framing
    said = framing.cleaned([turns.Message(turns.USER, turn)])
    ids = framing.prompt(said, self._ended)
    self._carry, completion = self._generator.extend(
      self._carry, ids, self._options, listener
    )
    self._ended = completion.reason == 'boundary'  # else it was cut off
    return completion.text
