"""Preferences: a prompt with a chosen and a rejected reply, in one row.

    boundary prompt | chosen boundary prompt | rejected boundary

With task.framing 'turns', | is another boundary, with 'text' nothing. A chat
template frames the turns itself: prompts and replies are then parts of its text
(turns.py), and the boundary, its end token, is only before the first. Only
replies and the boundaries that end them are predicted. So each is a run of
steps with weight, and after the first of a pair a sequence begins of its own. A
document is a list of JSON (data/tables/values.py). A prompt too long for a row
loses its beginning, the same in both sequences; a pair whose replies are too
long by themselves is left out.
"""

import json
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import turns
from rnn_jax.data.text.examples import base

COLUMNS = 'prompt', 'chosen', 'rejected'
REPLIES = 2


class Pairs(base.Framed):
  """The examples of documents; a pair that doesn't fit a row has no ids."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    self._boundary = np.array([tokenizer.boundary])
    self._between, self._end = self._boundary[:0], self._boundary
    if _has_turns(options.task):
      self._between = self._end = turns.of(tokenizer).end
    tokens = tokens_lib.of(documents, tokenizer, encoder(options.task))
    prompts, *replies = tokens.part_sizes.reshape(-1, 1 + REPLIES).T
    fixed = REPLIES * (len(self._between) + len(self._end)) + sum(replies)
    # How many ids of a prompt fit before each of its replies.
    self._room = np.minimum((options.length - fixed) // REPLIES, prompts)
    lengths = 1 + fixed + REPLIES * self._room
    super().__init__(tokens, np.where(self._room > 0, lengths, 0))
    self.unfit = int(np.sum(self._room <= 0))

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its document's parts."""
    prompt, *replies = parts
    chosen, rejected = (np.append(ids, self._end) for ids in replies)
    # ~ids are only read.
    question = ~np.concatenate([prompt[-self._room[n] :], self._between])
    return np.concatenate(
      [~self._boundary, question, chosen, question, rejected]
    )


def encoder(task: config_lib.Task) -> tokens_lib.EncodeParts:
  """Returns what encodes the prompt and the two replies of documents."""
  return encode_turns if _has_turns(task) else encode_texts


def _has_turns(task):
  # Only task 'dpo' makes these examples.
  return typing.cast(Any, task).answers


def encode_texts(
  tokenizer: tokenizer_lib.Tokenizer, documents: Sequence[bytes]
) -> list[turns.Ids]:
  """Returns the ids of the three texts of each document, as they are."""
  return turns.Framing(tokenizer).encode([*map(json.loads, documents)])


def encode_turns(
  tokenizer: tokenizer_lib.Tokenizer, documents: Sequence[bytes]
) -> list[turns.Ids]:
  """Returns the same, of a prompt and replies as they are framed as turns."""
  framing = turns.of(tokenizer)
  pairs = []
  for document in documents:
    prompt, *replies = json.loads(document)
    pairs += [
      framing.parts(turns.alternate([prompt, reply])) for reply in replies
    ]
  ids = framing.encode(pairs)
  return [
    [*chosen, rejected[-1]]
    for chosen, rejected in zip(ids[::2], ids[1::2], strict=True)
  ]


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: a document isn't a prompt with two replies; the message names
      it.
  """

  def check_one(split, n):
    try:
      parts = json.loads(split.read(n))
    except ValueError:
      parts = None
    texts = isinstance(parts, list) and all(isinstance(x, str) for x in parts)
    if not texts or len(parts) != len(COLUMNS):
      raise errors.InputError(
        f'{split.name(n)}: not a prompt with two replies: task.name='
        f"'dpo' needs rows with {list(COLUMNS)} and data.field='', as "
        f"data.source='jsonl' has them, not {config.data.source!r}"
      )

  what = 'every document is a prompt with two replies'
  base.check_each(documents, what, check_one)
