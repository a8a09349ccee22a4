"""Encoded pictures, read or refused with what is to be done."""

import contextlib
import io

import numpy as np

from rnn_jax import errors


@contextlib.contextmanager
def opened(content: bytes, where: str):
  """Opens a picture, as a context; its pixels are decoded when asked for.

  Raises:
    InputError: it can't be read, there or within the context; the message
      begins with `where`.
  """
  import PIL.Image

  try:
    with PIL.Image.open(io.BytesIO(content)) as picture:
      yield picture
  except errors.InputError:
    raise
  except Exception as error:
    # What of an unknown format is told is where the object lies in memory.
    unknown = isinstance(error, PIL.UnidentifiedImageError)
    reason = 'of no known format' if unknown else error
    raise errors.InputError(
      f'{where}: cannot be read as a picture ({reason}): mend it, or take it '
      'out'
    ) from None


def read(content: bytes, where: str, mode: str = ''):
  """Returns the PIL.Image of a picture, in `mode` if one is given.

  Raises:
    InputError: it can't be read; the message begins with `where`.
  """
  with opened(content, where) as picture:
    return in_mode(picture, mode or picture.mode)


def in_mode(picture, mode: str):
  """Returns a PIL picture in that mode; of 16 bits a pixel the upper 8."""
  import PIL.Image

  if picture.mode.startswith('I') and picture.mode != mode:
    pixels_HxW = np.clip(np.asarray(picture), 0, 65_535) >> 8
    picture = PIL.Image.fromarray(pixels_HxW.astype(np.uint8))
  return picture.convert(mode)
