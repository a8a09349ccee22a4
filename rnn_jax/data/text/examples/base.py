"""The contract of examples: a column of lengths, and ids by position.

A task's `make_examples(documents, tokenizer, options)` returns `Examples`.
Example n is what the task makes of document n: int32 ids, of which a model
reads `ids[:-1]` and predicts `ids[1:]`. An id that it reads but doesn't predict
is stored as `~id`, which is negative; its weight is 0. If an id stands for a
pair, the task's `unpack(tokenizer, batch)` returns the batch of what is read
and what is predicted.

What an example is made of comes tokenized (rnn_jax/data/store/tokens.py). Where
a task encodes a document in parts, its `parts(task)` returns what does that.
"""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib


@dataclasses.dataclass(frozen=True)
class Options:
  """What a maker of examples depends on.

  Attributes:
    task: section `task` of the config.
    data: section `data` of the config.
    length: ids that a row can predict.
    seed: of augmentation; without one every epoch is the same.
  """

  task: config_lib.Task
  data: config_lib.Data
  length: int
  seed: int | None


class Examples(Protocol):
  """The examples of a split.

  Attributes:
    lengths: ids of each; below 2 nothing of it is predicted.
    unfit: how many a row has no room for: they are left out.
  """

  lengths: np.ndarray
  unfit: int

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> np.ndarray:
    """Returns ids `start` to `stop` of example `n`; images vary by epoch."""


def check_each(
  documents: Mapping[str, documents_lib.Documents],
  what: str,
  check: Callable[[documents_lib.Documents, int], None],
) -> None:
  """Checks each document of all splits, once where they are kept.

  Args:
    documents: of each split.
    what: is known then.
    check: of document n of a split; raises InputError.
  """

  def each(split):
    for n in range(len(split)):
      check(split, n)

  for split in documents.values():
    split.remember(what, functools.partial(each, split))


class Framed:
  """Examples that are short, and framed as a whole; a subclass makes them."""

  def __init__(self, tokens: tokens_lib.Tokens, lengths: np.ndarray) -> None:
    self._tokens = tokens
    self.lengths = lengths
    self.unfit = 0

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> np.ndarray:
    """Returns ids `start` to `stop` of example `n`."""
    del epoch
    if not self.lengths[n]:
      return np.zeros(0, np.int32)
    return self.frame(n, self._tokens.parts(n)).astype(np.int32)[start:stop]

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its document's parts."""
    raise NotImplementedError
