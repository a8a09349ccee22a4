"""The handwritten digits that come with scikit-learn: 1,797 of 8 x 8 pixels.

They are the test part of a set from UCI; its grey levels, 0 to 16, are
stretched to bytes. `data.splits` deals them out.
Source: Alpaydin and Kaynak, "Cascading Classifiers", 1998.
"""

import numpy as np
from sklearn import datasets

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import documents
from rnn_jax.data import pictures
from rnn_jax.data.sources import base

SIZE, LEVELS = 8, 16
CLASSES = tuple('0123456789')


def load(data: config.Data) -> dict[str, documents.Documents]:
  """Returns the pictures of each split.

  Raises:
    InputError: data.image or data.classes are of other pictures.
  """
  base.check_no_path(data)
  if pictures.shape(data.image) != (SIZE, SIZE, 1):
    raise errors.InputError(
      f'data.image.size={data.image.size}, data.image.channels='
      f"{data.image.channels}: data.source='digits' has 8 x 8 pixels in grey: "
      'give 8 and 1'
    )
  if data.classes != CLASSES:
    raise errors.InputError(
      f"data.classes={data.classes!r}: data.source='digits' has {CLASSES}: "
      'give those'
    )
  found = datasets.load_digits()
  pixels = np.round(found.images * (255 / LEVELS)).astype(np.uint8)
  names = map(str, range(len(pixels)))
  read = pictures.Pictures(pixels[..., None], found.target, names)
  return documents.split(documents.whole(read), data.splits, 'document')
