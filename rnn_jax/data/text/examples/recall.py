"""Recall: a document of which only the answers are predicted.

    boundary text

An answer follows '=' and ends at '?' or at the end of the text; the rest is
only read. An example is one row and never cut: a cut would separate questions
from what they ask for.
"""

import functools
import re
from collections.abc import Mapping

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import synthetic
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base

ANSWER = re.compile(
  f'{re.escape(synthetic.MARK)}([^{re.escape(synthetic.ASK)}]+)'
)


class Questions(base.PerDocument):
  """Makes examples, one per document, the same in every epoch."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
  ) -> None:
    super().__init__(documents)
    self._tokenizer = tokenizer

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of an example."""
    del epoch
    text, end = self._documents.read(example).decode(), 0
    encode = self._tokenizer.encode_document
    ids = [np.array([~self._tokenizer.boundary])]
    for answer in ANSWER.finditer(text):
      ids += [~encode(text[end : answer.start(1)]), encode(answer[1])]
      end = answer.end()
    ids.append(~encode(text[end:]))
    return np.concatenate(ids).astype(np.int32)


def make(
  documents: documents_lib.Documents,
  tokenizer: tokenizer_lib.Tokenizer,
  options: base.Options,
) -> Questions:
  """Returns the examples of documents."""
  del options
  return Questions(documents, tokenizer)


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: a document has no answer, or is longer than a row.
  """
  for split in documents.values():
    split.remember(
      f'every document has an answer and at most {config.data.length} '
      'characters',
      functools.partial(_check, split, config),
    )


def _check(documents, config):
  for n in range(len(documents)):
    text = documents.read(n).decode()
    if not ANSWER.search(text):
      raise errors.InputError(
        f'document {documents.name(n)!r} has no answer, which '
        f'task.name={config.task.name!r} expects after '
        f'{synthetic.MARK!r}: add one, or leave the document out'
      )
    if len(text) > config.data.length:
      raise errors.InputError(
        f'data.length={config.data.length}: document {documents.name(n)!r} has '
        f"{len(text)} characters, and can't be cut: give that or more"
      )
