"""Dialogue: each turn is predicted after all turns before it.

    boundary turn boundary turn boundary ... turn boundary

A row is a whole dialogue, and the state holds its history: no turn is read
twice. The first turn isn't predicted. With task.turns 'first', as published,
only the second turn is predicted, and the dialogue ends with it. If a dialogue
is too long for a row, its first turns are kept.

A tokenizer with a chat template frames turns by that instead (turns.py), and
only what the assistant writes is predicted.
"""

import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.data.text.examples import base


class Dialogues(base.Framed):
  """The examples of documents."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    self._framing = turns.of(tokenizer)
    self._longest = options.length
    # Only task 'dialogue' makes these examples.
    self._pair = typing.cast(Any, options.task).turns == 'first'
    tokens = tokens_lib.of(documents, tokenizer, turns.encode_documents)
    counts = np.split(tokens.part_sizes, tokens.part_ends)[:-1]
    lengths = [self._length(each.tolist()) for each in counts]
    super().__init__(tokens, np.array(lengths, np.int64))

  def _length(self, counts):
    """Returns how many ids an example has, given those of its parts."""
    end = len(self._framing.end)
    sizes = [count + end for count in (counts[:2] if self._pair else counts)]
    if not sizes:
      return 0
    sizes[0] = min(sizes[0], self._most_of_first(sizes))
    sizes = [len(self._framing.begin), *sizes]
    return min(sum(sizes[: self._kept(sizes)]), self._longest + 1)

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its document's parts."""
    del n
    parts = self._framed(parts)
    # ~ids are only read.
    ids = [
      part if self._framing.is_written(n) else ~part
      for n, part in enumerate(parts)
    ]
    ids = [~self._framing.begin, *ids]
    kept = self._kept([len(x) for x in ids])
    return np.concatenate(ids[:kept])[: self._longest + 1]

  def parts(self, n: int) -> list[np.ndarray]:
    """Returns the ids of each part of a dialogue, see turns.py."""
    return self._framed(self._tokens.parts(n))

  def _framed(self, parts):
    parts = parts[:2] if self._pair else parts
    ids = [np.concatenate([part, self._framing.end]) for part in parts]
    if ids:
      ids[0] = ids[0][-self._most_of_first([*map(len, ids)]) :]
    return ids

  def _most_of_first(self, sizes):
    # A very long first turn would leave no room for its reply.
    half = max(self._longest // 2, 1)
    if not self._framing.has_roles:
      return half
    # A template begins with what the model is: it loses only what it must.
    return max(half, self._longest + 1 - sizes[1])

  def _kept(self, sizes):
    """Returns how many of the beginning and the parts fit; three at least."""
    kept = max(3, int(np.sum(np.cumsum(sizes) <= self._longest + 1)))
    # Nothing is predicted after a last part that is only read.
    return kept - (not self._framing.is_written(kept - 2))


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: a document has fewer than two turns; the message names it.
  """

  def check_one(split, n):
    if (count := len(turns.load(split.read(n)))) < 2:
      raise errors.InputError(
        f'{split.name(n)}: {count} turn(s) in data.source='
        f'{config.data.source!r}: a dialogue has two or more, as a list of '
        'texts or one per line'
      )

  base.check_each(documents, 'every document has two turns', check_one)
