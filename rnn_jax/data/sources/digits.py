"""The handwritten digits that come with scikit-learn: 1,797 of 8 x 8 pixels.

They are the test part of a UCI dataset; its gray levels, 0 to 16, are scaled to
bytes. `data.splits` divides them.
Source: Alpaydin and Kaynak, "Cascading Classifiers", 1998.
"""

import dataclasses
import typing

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.images import images
from rnn_jax.data.sources import base
from rnn_jax.data.text import documents

SIZE, LEVELS = 8, 16
CLASSES = tuple('0123456789')


@dataclasses.dataclass(frozen=True)
class Config(base.FixedClasses):
  """Options of the source, of section `data` of the config."""

  fixed_classes: typing.ClassVar[tuple[str, ...]] = CLASSES

  def check(self, config: config_lib.Config) -> None:
    """Checks that the layout is for images.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    del config
    images.check_layout(self)


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the images of each split.

  Raises:
    InputError: data.image or data.classes don't match the digits.
  """
  from sklearn import datasets  # takes long to import

  image = images.options_of(data)
  if images.shape(image) != (SIZE, SIZE, 1):
    raise errors.InputError(
      f'data.image.size={image.size}, data.image.channels={image.channels}: '
      "data.source='digits' has 8 x 8 gray pixels: give 8 and 1"
    )
  data.check_classes()
  digits = datasets.load_digits()
  pixels = np.round(digits.images * (255 / LEVELS)).astype(np.uint8)
  names = map(str, range(len(pixels)))
  reader = images.InMemoryImages(pixels[..., None], digits.target, names)
  return documents.split(documents.whole(reader), data.splits, 'document')
