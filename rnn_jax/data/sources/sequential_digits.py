"""The handwritten digits of source `digits`, read pixel by pixel.

A text has 64 characters, the gray levels 0 to 16 of 8 x 8 pixels as `a` to `q`,
row by row; its class is the digit. A model sees the first pixel 63 steps before
it answers. Source: Le, Jaitly and Hinton, "A Simple Way to Initialize Recurrent
Networks of Rectified Linear Units", 2015, on MNIST.
"""

import dataclasses
import typing

from rnn_jax.data.sources import base
from rnn_jax.data.sources import digits
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.FixedClasses):
  """Options of the source, of section `data` of the config."""

  fixed_classes: typing.ClassVar[tuple[str, ...]] = digits.CLASSES


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the texts of each split.

  Raises:
    InputError: data.classes aren't the digits.
  """
  from sklearn import datasets  # takes long to import

  data.check_classes()
  images = datasets.load_digits()
  levels = images.data.astype(int)
  texts = [''.join(chr(ord('a') + n) for n in image) for image in levels]
  reader = documents.InMemory(texts, images.target)
  return documents.split(documents.whole(reader), data.splits, 'document')
