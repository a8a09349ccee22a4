"""Recall: a document of which only the answers are predicted.

    boundary text

An answer follows '=' and ends at '?' or at the end of the text; the rest is
only read. An example is one row and never cut: a cut would separate questions
from what they ask for.
"""

import re
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import synthetic
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base

ANSWER = re.compile(
  f'{re.escape(synthetic.MARK)}([^{re.escape(synthetic.ASK)}]+)'
)


class Questions(base.Framed):
  """The examples of documents."""

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    del options
    tokens = tokens_lib.of(documents, tokenizer, encode_parts)
    super().__init__(tokens, tokens.sizes + 1)
    self._begin = np.array([~tokenizer.boundary])

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its document's parts."""
    del n
    ids = [part if k % 2 else ~part for k, part in enumerate(parts)]
    return np.concatenate([self._begin, *ids])


def encode_parts(
  tokenizer: tokenizer_lib.Tokenizer, documents: Sequence[bytes]
) -> list[list[np.ndarray]]:
  """Returns the ids of what is read and of answers, in turn, of documents."""
  return [
    tokenizer.encode_documents(_parts(each.decode())) for each in documents
  ]


def _parts(text):
  """Returns what is before an answer, the answer, and so on to the end."""
  parts, end = [], 0
  for answer in ANSWER.finditer(text):
    parts += [text[end : answer.start(1)], answer[1]]
    end = answer.end()
  return [*parts, text[end:]]


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: a document has no answer, or is longer than a row.
  """
  length = config.data.length

  def check_one(split, n):
    text = split.read(n).decode()
    if not ANSWER.search(text):
      raise errors.InputError(
        f'document {split.name(n)!r} has no answer, which '
        f'task.name={config.task.name!r} expects after '
        f'{synthetic.MARK!r}: add one, or leave the document out'
      )
    if len(text) > length:
      raise errors.InputError(
        f'data.length={length}: document {split.name(n)!r} has {len(text)} '
        "characters, and can't be cut: give that or more"
      )

  what = f'every document has an answer and at most {length} characters'
  base.check_each(documents, what, check_one)
