"""Tagging: a text of which each character has a label.

    inputs=labels

Character t of `inputs` has character t of `labels`, which the model predicts
after it has read characters 1 to t. The model doesn't read labels, so a
predicted label can't help with the next one. A label '.' isn't predicted.

An example is one row and never cut. It holds pairs of ids, each as one number,

    boundary, pair_1, ..., pair_n          pair_t = label_t V + input_t

for a vocabulary of V, which `unpack` takes apart in a batch.
"""

import functools
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import synthetic
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base

LARGEST = 2**15  # vocabulary, so that a pair is an int32


class Tagged(base.Framed):
  """The examples of documents.

  Raises:
    InputError: a pair of ids isn't an int32.
  """

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    del options
    if tokenizer.size > LARGEST:
      raise errors.InputError(
        f"task.name='tagging': the texts have {tokenizer.size} characters, "
        f'more than the {LARGEST} that it can tell apart'
      )
    tokens = tokens_lib.of(documents, tokenizer, encode_parts)
    super().__init__(tokens, tokens.sizes // 3 + 1)
    self._tokenizer = tokenizer

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its document's parts."""
    del n
    inputs, labels, is_asked = parts
    pairs = labels * self._tokenizer.size + inputs
    pairs = np.where(is_asked, pairs, ~pairs)
    return np.append(~self._tokenizer.boundary, pairs)


def encode_parts(
  tokenizer: tokenizer_lib.Tokenizer, documents: Sequence[bytes]
) -> list[list[np.ndarray]]:
  """Returns ids of inputs, of labels, and 1 where a label is asked for."""
  encoded = []
  for document in documents:
    inputs, labels = parts(document.decode())
    is_asked = np.array([label != synthetic.FILLER for label in labels], int)
    ids = tokenizer.encode_documents([inputs, labels])
    encoded.append([*ids, is_asked])
  return encoded


def parts(text: str) -> tuple[str, str]:
  """Returns (inputs, labels) of a document; both '' if it has none."""
  size = len(text) // 2
  if len(text) < 3 or len(text) % 2 == 0 or text[size] != synthetic.MARK:
    return '', ''
  return text[:size], text[size + 1 :]


def unpack(
  tokenizer: tokenizer_lib.Tokenizer, batch: batch_lib.Batch
) -> batch_lib.Batch:
  """Returns a batch of pairs as what is read and what is predicted."""
  size = np.int32(tokenizer.size)
  labels_BxL, inputs_BxL = np.divmod(batch.targets_BxL, size)
  return batch._replace(tokens_BxL=inputs_BxL, targets_BxL=labels_BxL)


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: a document has no label for each character, or is longer than a
      row.
  """
  longest = {
    'train': ('data.length', config.data.length),
    'validation': ('evaluate.length', config.evaluate.length),
    'test': ('evaluate.length', config.evaluate.length),
  }
  for name, split in documents.items():
    key, length = longest.get(name, longest['test'])
    if not length:
      key, length = longest['train']
    what = f'every document has labels and at most {length} characters'
    check_one = functools.partial(_check, key, length)
    base.check_each({name: split}, what, check_one)


def _check(key, length, split, n):
  inputs, _ = parts(split.read(n).decode())
  if not inputs:
    raise errors.InputError(
      f'document {split.name(n)!r} has no label for each character, '
      "which task.name='tagging' expects: write it as inputs=labels, both of "
      'one length'
    )
  if len(inputs) > length:
    raise errors.InputError(
      f'{key}={length}: document {split.name(n)!r} has {len(inputs)} '
      "characters to label, and can't be cut: give that or more"
    )
