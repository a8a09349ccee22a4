"""Dialogue: each turn is predicted behind all turns before it.

    boundary turn boundary turn boundary ... turn boundary

A row is a whole dialogue, whose state holds the history: no turn is read
twice. The first turn is not predicted. With task.turns 'first', as published,
the second turn is all that is predicted, and the dialogue ends with it. Of a
dialogue that is too long for a row the first turns stay.
"""

import numpy as np

from rnn_jax import errors


class Dialogues:
  """Makes examples; as many as documents, the same in every epoch."""

  def __init__(self, documents, tokenizer, options):
    self._documents = documents
    self._tokenizer = tokenizer
    self._longest = options.length
    self._pair = options.task.turns == 'first'

  def __len__(self):
    return len(self._documents)

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is of."""
    return example

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of an example."""
    del epoch
    first, *replies = self.turns(example)
    ids = [[~self._tokenizer.boundary], ~first, *replies]
    kept = max(3, int(np.sum(np.cumsum([*map(len, ids)]) <= self._longest + 1)))
    return np.concatenate(ids[:kept])[: self._longest + 1].astype(np.int32)

  def turns(self, example: int) -> list[np.ndarray]:
    """Returns the ids of each turn, with the boundary behind it."""
    turns = split_turns(self._documents.read(example))
    turns = turns[:2] if self._pair else turns
    boundary, encode = self._tokenizer.boundary, self._tokenizer.encode_document
    ids = [np.append(encode(turn), boundary) for turn in turns]
    # A first turn without end would leave no room for its reply.
    ids[0] = ids[0][-max(self._longest // 2, 1) :]
    return ids


def split_turns(text: bytes) -> list[str]:
  """Returns the turns of a document, a line each."""
  return [turn for turn in text.decode().split('\n') if turn.strip()]


def make(documents, tokenizer, options):
  """Returns the examples of documents."""
  return Dialogues(documents, tokenizer, options)


def check(documents, config):
  """Checks the documents of all splits.

  Raises:
    InputError: a document has fewer than two turns; the message names it.
  """
  for split in documents.values():
    for n in range(len(split)):
      turns = len(split_turns(split.read(n)))
      if turns < 2:
        raise errors.InputError(
          f'{split.names[n]}: {turns} turn(s) in data.source='
          f'{config.data.source!r}: a dialogue has two or more, a list of '
          'texts or a line each'
        )
