"""Classification of images: the bytes of an image, then its class.

In training, images are moved and mirrored as data.image says, differently in
each epoch.
"""

from collections.abc import Mapping

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import base
from rnn_jax.data.text.examples import classification


class Labelled:
  """The examples of documents: an image has one prediction.

  Raises:
    InputError: a document has no class.
  """

  unfit = 0

  def __init__(
    self,
    documents: documents_lib.Documents,
    tokenizer: tokenizer_lib.Tokenizer,
    options: base.Options,
  ) -> None:
    del tokenizer  # pixels are bytes
    classification.check_labels(documents, options.data)
    self._documents = documents
    self._labels = np.asarray(documents.labels)
    self._image = images.options_of(options.data)
    self._seed = options.seed
    self.lengths = np.full(len(documents), 2)

  def read(
    self, n: int, start: int = 0, stop: int | None = None, epoch: int = 0
  ) -> np.ndarray:
    """Returns the pixels of an image as ids, and its class."""
    del start, stop
    content = self._documents.read(n)
    pixels = np.frombuffer(content, np.uint8)
    if self._seed is not None:
      rng = np.random.default_rng((self._seed, epoch, n))
      pixels = pixels.reshape(images.shape(self._image))
      pixels = images.augment(pixels, self._image, rng).ravel()
    ids = np.empty(pixels.size + 1, np.int32)
    ids[:-1], ids[-1] = pixels, self._labels[n]
    return ids


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Checks the documents of all splits.

  Raises:
    InputError: they aren't images of the config's size, the source has no
      classes, or training has only one class.
  """
  image = images.options_of(config.data)
  size = int(np.prod(images.shape(image)))
  for split in documents.values():
    if np.any(split.sizes != size):
      raise errors.InputError(
        f'data.source={config.data.source!r} has no images of data.image.size='
        f'{image.size} and data.image.channels={image.channels}: use a source '
        "that has, such as 'digits', 'images' or 'tfds:NAME'"
      )
  classification.check(documents, config)
