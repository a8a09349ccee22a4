"""Classification: a text and its class.

With task.answer 'word', as published, the model writes the class after the
text, and only the class is predicted:

    boundary text boundary word boundary

With 'pooled', a head predicts the class from the states of the text:

    boundary text boundary | V + class

V + class isn't a token: the last step predicts it. If task.text_weight is above
0, the text is predicted too, with that weight. A text too long for a row loses
its end.
"""

import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base


class Framing:
  """What a model reads of a text, before it says the class.

  Attributes:
    answers: the ids that each class is written with, or its target.
    room: how many ids of a text there is room for.

  Raises:
    InputError: a row has no room for a text and its class.
  """

  def __init__(
    self,
    tokenizer: tokenizer_lib.Tokenizer,
    task: config_lib.Task,
    data: config_lib.Data,
    length: int,
  ) -> None:
    self._tokenizer = tokenizer
    if task.writes_text:
      self.answers = words(tokenizer, data.classes)
    else:
      targets = range(tokenizer.size, tokenizer.size + len(data.classes))
      self.answers = [np.array([target]) for target in targets]
    longest = max(map(len, self.answers))
    self.room = length - 1 - longest
    if self.room < 1:
      raise errors.InputError(
        f'rows of {length} tokens (data.length, evaluate.length, or '
        f'one of data.length_schedule) have no room for a text and its class, '
        f'with task.answer={task.answer!r}: give {longest + 2} or more'
      )

  def question(self, text: str | bytes) -> np.ndarray:
    """Returns the ids before the answer; a long text loses its end."""
    return self.frame(self._tokenizer.encode_document(text))

  def frame(self, ids: np.ndarray) -> np.ndarray:
    """Returns the ids before the answer, given those of a text."""
    ids = ids[: self.room]
    boundary = [self._tokenizer.boundary]
    return np.concatenate([boundary, ids, boundary]).astype(np.int32)


class Labelled(base.Framed):
  """The examples of documents.

  Raises:
    InputError: a row has no room for a text and its class, or a document has no
      class.
  """

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    check_labels(documents, options.data)
    self._labels = np.asarray(_labels(documents))
    # Only tasks with these options make these examples.
    task = typing.cast(Any, options.task)
    self._predict_text = task.text_weight > 0
    self._framing = Framing(tokenizer, task, options.data, options.length)
    tokens = tokens_lib.of(documents, tokenizer)
    answers = np.array([*map(len, self._framing.answers)])
    read = np.minimum(tokens.sizes, self._framing.room) + 2
    super().__init__(tokens, read + answers[self._labels])

  def frame(self, n: int, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the ids of an example, given those of its text."""
    question = self._framing.frame(parts[0])
    question = question if self._predict_text else ~question
    return np.append(question, self._framing.answers[self._labels[n]])

  def question(self, n: int) -> np.ndarray:
    """Returns the ids that are read before an answer."""
    return self._framing.frame(self._tokens.parts(n)[0])


def _labels(documents):
  """Returns the class of each document, by its number."""
  labels = documents.labels
  assert labels is not None  # see `check`
  return labels


def words(
  tokenizer: tokenizer_lib.Tokenizer, classes: Sequence[str]
) -> list[np.ndarray]:
  """Returns the ids of each class's name, followed by the boundary.

  Raises:
    InputError: the vocabulary lacks characters of a name.
  """
  return [
    np.append(tokenizer.encode(name), tokenizer.boundary) for name in classes
  ]


def check_labels(
  documents: documents_lib.Documents, data: config_lib.Data
) -> None:
  """Checks the documents of a split.

  Raises:
    InputError: the class of one isn't in data.classes; the message names it.
  """
  classes, labels = len(data.classes), np.asarray(_labels(documents))
  outside = np.flatnonzero((labels < 0) | (labels >= classes))
  if len(outside):
    n = outside[0]
    raise errors.InputError(
      f'{documents.name(n)}: its class is {labels[n]}, and '
      f'data.classes={data.classes!r} are 0 to {classes - 1}: correct its '
      'class, or use another split'
    )


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  A test split without labels, as some datasets are published, only causes a
  warning: training doesn't need it, and evaluation on it is refused.

  Raises:
    InputError: the source has no classes, or training has only one class.
  """
  train = documents['train']
  if train.labels is None:
    raise errors.InputError(
      f'data.source={config.data.source!r} has no classes: use a source that '
      "has some, such as 'jsonl' or 'tfds:NAME'"
    )
  for name, split in documents.items():
    try:
      check_labels(split, config.data)
    except errors.InputError as error:
      if name != 'test':
        raise
      logging.warning('split %r cannot be evaluated: %s', name, error)
  classes = np.unique(np.asarray(train.labels))
  if len(classes) < 2:
    names = [config.data.classes[n] for n in classes]
    raise errors.InputError(
      f'data.classes={config.data.classes!r}: all {len(train)} training texts '
      f'are of one class, {names}: there is nothing to learn'
    )
