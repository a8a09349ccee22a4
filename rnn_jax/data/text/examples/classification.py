"""Classification: a text and its class.

With task.answer 'word', as published, the model writes the class behind the
text, and only that is predicted:

    boundary text boundary word boundary

With 'pooled', a head reads the class off the states of the text:

    boundary text boundary | V + class

V + class is no token: the last step predicts it. The text is predicted as well
where task.text_weight says how much that counts. A text too long for a row
loses its end.
"""

import numpy as np
from absl import logging

from rnn_jax import errors


class Labelled:
  """Makes examples; as many as documents, the same in every epoch.

  Raises:
    InputError: a row has no room for a text beside its class, or a document
      has no class.
  """

  def __init__(self, documents, tokenizer, options):
    check_labels(documents, options.data)
    self._documents = documents
    self._tokenizer = tokenizer
    classes = range(len(options.data.classes))
    self._predict_text = options.task.text_weight > 0
    if options.task.answer == 'word':
      self._answers = words(tokenizer, options.data.classes)
    else:
      self._answers = [np.array([tokenizer.size + n]) for n in classes]
    longest = max(map(len, self._answers))
    self._room = options.length - 1 - longest
    if self._room < 1:
      raise errors.InputError(
        f'rows of {options.length} tokens (data.length, evaluate.length, or '
        f'one of data.length_schedule): there is no room for a text beside its '
        f'class, of task.answer={options.task.answer!r}: give '
        f'{longest + 2} or more'
      )

  def __len__(self):
    return len(self._documents)

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is of."""
    return example

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the ids of an example."""
    del epoch
    answer = self._answers[self._documents.labels[example]]
    read = self.question(self._documents.read(example))
    return np.concatenate([read, answer]).astype(np.int32)

  def question(self, text: bytes) -> np.ndarray:
    """Returns what stands in front of an answer."""
    ids = self._tokenizer.encode_document(text)[: self._room]
    boundary = [self._tokenizer.boundary]
    read = np.concatenate([boundary, ids, boundary])
    return read if self._predict_text else ~read


def words(tokenizer, classes) -> list[np.ndarray]:
  """Returns the ids of each class's name, with the boundary behind it.

  Raises:
    InputError: the vocabulary lacks characters of a name.
  """
  return [
    np.append(tokenizer.encode(name), tokenizer.boundary) for name in classes
  ]


def make(documents, tokenizer, options):
  """Returns the examples of documents."""
  return Labelled(documents, tokenizer, options)


def check_labels(documents, data):
  """Checks the documents of a split.

  Raises:
    InputError: one has none of the classes; the message names it.
  """
  classes, labels = len(data.classes), documents.labels
  outside = np.flatnonzero((labels < 0) | (labels >= classes))
  if len(outside):
    n = outside[0]
    raise errors.InputError(
      f'{documents.names[n]}: its class is {labels[n]}, and '
      f'data.classes={data.classes!r} are 0 to {classes - 1}: give it its '
      'class, or use another split'
    )


def check(documents, config):
  """Checks the documents of all splits.

  A test split without labels, as some sets are published, is warned of: its
  makers of examples refuse it, and training needs none.

  Raises:
    InputError: they have no classes, or the training split has one alone.
  """
  train = documents['train']
  if train.labels is None:
    raise errors.InputError(
      f'data.source={config.data.source!r} has no classes: use a source that '
      "has, such as 'jsonl' or 'tfds:NAME'"
    )
  for name, split in documents.items():
    try:
      check_labels(split, config.data)
    except errors.InputError as error:
      if name != 'test':
        raise
      logging.warning('split %r cannot be evaluated: %s', name, error)
  found = np.unique(train.labels)
  if len(found) < 2:
    only = [config.data.classes[n] for n in found]
    raise errors.InputError(
      f'data.classes={config.data.classes!r}: all {len(train)} training texts '
      f'are of one class, {only}: there is nothing to learn'
    )
