"""A task: predict the second half of each document."""

import dataclasses
from typing import ClassVar

import numpy as np

from rnn_jax import config
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text.examples import base
from rnn_jax.tasks import language_modeling


@dataclasses.dataclass(frozen=True)
class Config(config.Task):
  """Options of the task."""

  begin: float = config.option(0.5, below=1)  # of a document: what is only read

  per_token: ClassVar[bool] = True


class Halves(base.Framed):
  """The examples of documents."""

  def __init__(self, documents, tokenizer, options):
    tokens = tokens_lib.of(documents, tokenizer)
    super().__init__(tokens, np.minimum(tokens.sizes, options.length) + 1)
    self._boundary, self._begin = tokenizer.boundary, options.task.begin

  def frame(self, n, parts):
    """Returns the ids of an example; ~id is read and not predicted."""
    ids = np.append(self._boundary, parts[0][: self.lengths[n] - 1])
    cut = 1 + int(self._begin * (len(ids) - 1))
    return np.concatenate([~ids[:cut], ids[cut:]])


make_examples = Halves


def check_documents(documents, config):
  """Any document will do."""


def make(config, tokenizer):
  """Returns the task of a Config."""
  return language_modeling.Task(config, tokenizer)
