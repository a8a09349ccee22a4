"""A conversation: the model's state goes from turn to turn.

    conversation = Conversation(generator, options)
    print(conversation.say('Hello .'))

Each turn is read once, however long the conversation is, and all that is kept
of it is the state, constant in size.
"""

from collections.abc import Callable

import numpy as np

from rnn_jax import errors
from rnn_jax.inference import generate


class Conversation:
  """Turns of a person and of a model that was trained on dialogues."""

  def __init__(self, generator: generate.Generator, options: generate.Options):
    """Begins one. Options are those of generation, for each reply.

    Raises:
      InputError: the model knows no turns or has learned positions, or there
        is a stop string.
    """
    if not generator.asks:
      raise errors.InputError(
        "the run's model knows no turns: train one with task.name='dialogue'"
      )
    if generator.longest:
      raise errors.InputError(
        f'the model has learned positions for {generator.longest} tokens, and '
        "a conversation has no end: train one with model.positions='sinusoidal'"
      )
    if options.stop:
      raise errors.InputError(
        f'stop={options.stop!r}: a reply ends with its boundary: leave it out'
      )
    self._generator = generator
    self._options = options
    self.reset()

  def reset(self) -> None:
    """Forgets all that was said."""
    self._carry = self._generator.begin(self._options)
    self._before = self._boundary  # ids that the next turn stands behind

  def say(
    self, turn: str, listener: Callable[[int, str], None] | None = None
  ) -> str:
    """Reads a turn and returns the reply.

    Args:
      turn: what the person says.
      listener: see `Generator.generate`.

    Raises:
      InputError: a turn that is empty, or that the vocabulary doesn't cover;
        the conversation stands as before.
    """
    ids = self._generator.tokenizer.encode(turn.strip())
    if not len(ids):
      raise errors.InputError(f'turn={turn!r}: say something')
    ids = np.concatenate([self._before, ids, self._boundary])
    self._carry, completion = self._generator.extend(
      self._carry, ids, self._options, listener
    )
    # A reply that was cut off has no boundary yet.
    ended = completion.reason == 'boundary'
    self._before = self._boundary[:0] if ended else self._boundary
    return completion.text

  @property
  def _boundary(self):
    return np.array([self._generator.tokenizer.boundary], np.int32)
