"""Classification of pictures: the bytes of one, and its class behind them.

In training pictures are moved and mirrored as data.image says, differently in
each epoch.
"""

import numpy as np

from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.text.examples import classification


class Labelled:
  """Makes examples; as many as documents.

  Raises:
    InputError: a document has no class.
  """

  def __init__(self, documents, options):
    classification.check_labels(documents, options.data)
    self._documents = documents
    self._image = options.data.image
    self._seed = options.seed

  def __len__(self):
    return len(self._documents)

  def document(self, example: int) -> int:
    """Returns the number of the document that an example is of."""
    return example

  def make(self, example: int, epoch: int) -> np.ndarray:
    """Returns the pixels of an example as ids, and its class."""
    content = self._documents.read(example)
    pixels = np.frombuffer(content, np.uint8)
    if self._seed is not None:
      rng = np.random.default_rng((self._seed, epoch, example))
      pixels = pixels.reshape(images.shape(self._image))
      pixels = images.augment(pixels, self._image, rng).ravel()
    label = self._documents.labels[example]
    return np.append(pixels.astype(np.int32), np.int32(label))


def make(documents, tokenizer, options):
  """Returns the examples of documents."""
  del tokenizer  # pixels are bytes
  return Labelled(documents, options)


def check(documents, config):
  """Checks the documents of all splits.

  Raises:
    InputError: they are no pictures of the config's size, have no classes, or
      the training split has one alone.
  """
  wanted = int(np.prod(images.shape(config.data.image)))
  for found in documents.values():
    if np.any(found.sizes != wanted):
      raise errors.InputError(
        f'data.source={config.data.source!r} holds no pictures of '
        f'data.image.size={config.data.image.size} and data.image.channels='
        f'{config.data.image.channels}: use a source that does, such as '
        "'digits', 'images' or 'tfds:NAME'"
      )
  classification.check(documents, config)
