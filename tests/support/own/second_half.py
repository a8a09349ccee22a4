"""A task: predict the second half of each document."""

import dataclasses
from typing import ClassVar

import numpy as np

from rnn_jax import config
from rnn_jax.tasks import language_modeling


@dataclasses.dataclass(frozen=True)
class Config(config.Task):
  """Options of the task."""

  begin: float = config.option(0.5, below=1)  # of a document: what is only read

  per_token: ClassVar[bool] = True


class Halves:
  """Makes examples; as many as documents."""

  def __init__(self, documents, tokenizer, options):
    self._documents, self._tokenizer = documents, tokenizer
    self._begin, self._length = options.task.begin, options.length

  def __len__(self):
    return len(self._documents)

  def document(self, example):
    """Returns the number of the document that an example is of."""
    return example

  def make(self, example, epoch):
    """Returns the ids of an example; ~id is read and not predicted."""
    del epoch
    text = self._documents.read(example)
    ids = self._tokenizer.encode_document(text)[: self._length]
    ids = np.concatenate([[self._tokenizer.boundary], ids])
    cut = 1 + int(self._begin * (len(ids) - 1))
    return np.concatenate([~ids[:cut], ids[cut:]]).astype(np.int32)


make_examples = Halves


def check_documents(documents, config):
  """Any document will do."""


def make(config, tokenizer):
  """Returns the task of a Config."""
  return language_modeling.Task(config, tokenizer)
