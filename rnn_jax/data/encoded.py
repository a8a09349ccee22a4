"""Encoded pictures, read whole or refused with what is to be done."""

import io

from rnn_jax import errors


def read(content: bytes, where: str, mode: str = ''):
  """Returns the PIL.Image of an encoded picture, in `mode` if one is given.

  Raises:
    InputError: it can't be read; the message begins with `where`.
  """
  import PIL.Image

  try:
    with PIL.Image.open(io.BytesIO(content)) as opened:
      return opened.convert(mode or opened.mode)
  except Exception as error:
    # What of an unknown format is told is where the object lies in memory.
    unknown = isinstance(error, PIL.UnidentifiedImageError)
    reason = 'of no known format' if unknown else error
    raise errors.InputError(
      f'{where}: cannot be read as a picture ({reason}): mend it, or take it '
      'out'
    ) from None
