"""The contract of a maker of examples.

A task's `make_examples(documents, tokenizer, options)` returns `Examples`; an
example is an array of ids as in rnn_jax/data/batching/rows.py. If an id stands
for a pair, the task's `unpack(tokenizer, batch)` returns the batch of what is
read and what is predicted.
"""

import dataclasses
from typing import Protocol

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import documents as documents_lib


@dataclasses.dataclass(frozen=True)
class Options:
  """What a maker of examples depends on.

  Attributes:
    task: section `task` of the config.
    data: section `data` of the config.
    length: ids that a row can predict.
    window_bytes: bytes of a window of a document that is cut.
    seed: of cuts and augmentation; without one every epoch is the same.
  """

  task: config_lib.Task
  data: config_lib.Data
  length: int
  window_bytes: int
  seed: int | None


class Examples(Protocol):
  """Makes examples; their number is the same in each epoch.

  Some also have `size(example, epoch)`: how many ids `make` returns, or None if
  that isn't known before they are made. And some have `fits(example)`: whether
  an example fits a row; those that don't are left out, and a run says so.
  """

  def __len__(self) -> int:
    """Returns the number of examples in an epoch."""

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is from."""

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of an example; fewer than two if nothing is predicted."""


class PerDocument:
  """Examples of which each is a document; a subclass makes them."""

  def __init__(self, documents: documents_lib.Documents) -> None:
    self._documents = documents

  def __len__(self) -> int:
    return len(self._documents)

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is from."""
    return example
