"""Recall: a document in which the answers alone are predicted.

    boundary text

What stands behind '=', up to '?' or the end, is an answer; all else is read.
An example is a row of its own, never cut: a cut would part questions from what
they ask for.
"""

import re

import numpy as np

from rnn_jax import errors
from rnn_jax.data.text import synthetic

ANSWER = re.compile(
  f'{re.escape(synthetic.MARK)}([^{re.escape(synthetic.ASK)}]+)'
)


class Questions:
  """Makes examples; as many as documents, the same in every epoch."""

  def __init__(self, documents, tokenizer):
    self._documents = documents
    self._tokenizer = tokenizer

  def __len__(self):
    return len(self._documents)

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is of."""
    return example

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of an example."""
    del epoch
    text, end = self._documents.read(example).decode(), 0
    encode = self._tokenizer.encode_document
    ids = [np.array([~self._tokenizer.boundary])]
    for found in ANSWER.finditer(text):
      ids += [~encode(text[end : found.start(1)]), encode(found[1])]
      end = found.end()
    ids.append(~encode(text[end:]))
    return np.concatenate(ids).astype(np.int32)


def make(documents, tokenizer, options):
  """Returns the examples of documents."""
  del options
  return Questions(documents, tokenizer)


def check(documents, config):
  """Checks the documents of all splits.

  Raises:
    InputError: a document without an answer, or longer than a row.
  """
  for split in documents.values():
    for n in range(len(split)):
      text = split.read(n).decode()
      if not ANSWER.search(text):
        raise errors.InputError(
          f'document {split.names[n]!r}: no answer, which '
          f'task.name={config.task.name!r} looks for behind '
          f'{synthetic.MARK!r}: write one, or leave it out'
        )
      if len(text) > config.data.length:
        raise errors.InputError(
          f'data.length={config.data.length}: document {split.names[n]!r} has '
          f'{len(text)} characters, and is not to be cut: give that or more'
        )
