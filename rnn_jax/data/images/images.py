"""Images: from encoded files to pixels, and from pixels to batches.

An image is size x size x channels bytes, its rows from the top. In training it
may be moved (cropped from a version with a black border) and mirrored; the
result for image n in an epoch depends only on (seed, epoch, n).
Source: Krizhevsky et al., "ImageNet Classification with Deep Convolutional
Neural Networks", 2012.
"""

import typing
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.images import codec

MODES = {1: 'L', 3: 'RGB'}


class InMemoryImages:
  """The Reader of images in memory.

  Args:
    pixels_NxHxWxC: uint8.
    labels: the class of each image.
    names: the name of each image.
    files: the files that they are from.
  """

  difficulties = None

  def __init__(
    self,
    pixels_NxHxWxC: np.ndarray,
    labels: Sequence[int] | np.ndarray,
    names: Iterable[str],
    files: Iterable[str] = (),
  ) -> None:
    self.pixels = pixels_NxHxWxC
    self.labels = np.array(labels, np.int64)
    self.names = tuple(names)
    self.files = tuple(files)
    size = int(np.prod(pixels_NxHxWxC.shape[1:]))
    self.sizes = np.full(len(pixels_NxHxWxC), size, np.int64)

  def read(self, unit: int, start: int, stop: int) -> bytes:
    return self.pixels[unit].tobytes()[start:stop]


def options_of(data: config.Data) -> config.Image:
  """Returns `data.image`, which layout 'images' adds to section `data`."""
  return typing.cast(typing.Any, data).image


def check_layout(data: config.Data) -> None:
  """Checks that the layout of a source of images is for images.

  Raises:
    InputError: it isn't; names both.
  """
  if not data.holds_images:
    errors.refuse(
      'data.source',
      data.source,
      f'it has images, and data.layout={data.layout!r} is for tokens: give '
      "data.layout='images'",
    )


def shape(image: config.Image) -> tuple[int, int, int]:
  """Returns the shape of an image."""
  return image.size, image.size, image.channels


def decode(content: bytes, image: config.Image, where: str) -> np.ndarray:
  """Returns the pixels of an encoded image, HxWxC bytes.

  Raises:
    InputError: it can't be read, or has another size and data.image.resize is
      False; the message begins with `where`.
  """
  import PIL.Image

  wanted = image.size, image.size
  with codec.opened(content, where) as opened:
    _check_size(opened.size, image, where)
    decoded = codec.in_mode(opened, MODES[image.channels])
  if decoded.size != wanted:
    decoded = decoded.resize(wanted, PIL.Image.Resampling.BILINEAR)
  return np.asarray(decoded, np.uint8).reshape(shape(image))


def check(content: bytes, image: config.Image, where: str) -> None:
  """Checks the header of an encoded image; doesn't decode its pixels.

  Raises:
    InputError: as `decode` does.
  """
  with codec.opened(content, where) as opened:
    _check_size(opened.size, image, where)


def _check_size(size, image, where):
  if size != (image.size, image.size) and not image.resize:
    width, height = size
    raise errors.InputError(
      f'{where}: {width} x {height} pixels, and data.image.size={image.size}: '
      'give that size, or data.image.resize=True'
    )


def augment(
  pixels_HxWxC: np.ndarray, image: config.Image, rng: np.random.Generator
) -> np.ndarray:
  """Returns an image as training sees it: randomly moved and mirrored."""
  down, right = rng.integers(0, 2 * image.crop + 1, 2) - image.crop
  mirrored = rng.random() < 0.5
  if image.crop:
    pixels_HxWxC = _moved(pixels_HxWxC, down, right)
  return pixels_HxWxC[:, ::-1] if image.flip and mirrored else pixels_HxWxC


def _moved(pixels_HxWxC, down, right):
  """The image that begins at (down, right); what lies outside is black."""
  height, width, _ = pixels_HxWxC.shape
  rows = slice(max(down, 0), height + min(down, 0))
  columns = slice(max(right, 0), width + min(right, 0))
  moved_HxWxC = np.zeros_like(pixels_HxWxC)
  top, left = max(-down, 0), max(-right, 0)
  part = pixels_HxWxC[rows, columns]
  moved_HxWxC[top : top + part.shape[0], left : left + part.shape[1]] = part
  return moved_HxWxC
