"""Decodes images, or refuses them with a remedy."""

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rnn_jax import errors

if TYPE_CHECKING:
  import PIL.Image

PIXELS = 2**26  # of an image, at most: decoded they take 4 bytes each
LARGEST = 256 * 2**20  # bytes of a file, or of a member of an archive


def check_size(size: int, where: str) -> None:
  """Checks the size of a file before it is read, in an archive unpacked.

  Members of an archive, which a stranger packed, are read one at a time and
  never written to disk under their own names.

  Args:
    size: bytes.
    where: the archive and the member, for the message.

  Raises:
    InputError: it is larger than any image or batch should be.
  """
  if size > LARGEST:
    raise errors.InputError(
      f'{where}: {size:,} bytes unpacked, and {LARGEST:,} are allowed: unpack '
      'it yourself, and give the folder'
    )


@contextlib.contextmanager
def opened(content: bytes, where: str) -> Iterator['PIL.Image.Image']:
  """Opens an image, as a context; its pixels are decoded on demand.

  Raises:
    InputError: it can't be read, there or within the context; the message
      begins with `where`.
  """
  import PIL.Image

  try:
    with PIL.Image.open(io.BytesIO(content)) as image:
      width, height = image.size
      if width * height > PIXELS:
        raise errors.InputError(
          f'{where}: {width:,} x {height:,} pixels, and {PIXELS:,} in all are '
          'allowed: make it smaller, or remove it'
        )
      yield image
  except errors.InputError:
    raise
  except Exception as error:
    # For an unknown format PIL reports only an object's address.
    unknown = isinstance(error, PIL.UnidentifiedImageError)
    reason = 'unknown format' if unknown else error
    raise errors.InputError(
      f'{where}: cannot be read as an image ({reason}): repair or remove it'
    ) from None


def check(content: bytes, where: str) -> None:
  """Checks that an image can be decoded.

  Raises:
    InputError: it can't; the message begins with `where`.
  """
  with opened(content, where) as image:
    in_mode(image, image.mode)


def in_mode(image: 'PIL.Image.Image', mode: str) -> 'PIL.Image.Image':
  """Returns an image in a PIL mode; 16-bit pixels keep their upper 8 bits."""
  import PIL.Image

  if image.mode.startswith('I') and image.mode != mode:
    pixels_HxW = np.clip(np.asarray(image), 0, 65_535) >> 8
    image = PIL.Image.fromarray(pixels_HxW.astype(np.uint8))
  return image.convert(mode)
