"""The number of channels of the images in a column.

TFDS needs one number for the whole column: 1 if all images are gray, else 3. An
image in another mode (palette, transparency, 16 bits per pixel) is re-encoded
as PNG.
"""

import io

from rnn_jax.data.images import codec
from rnn_jax.data.images import images
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import schema as schema_lib


def observe(schema: schema_lib.Schema, example: examples.Example) -> None:
  """Records in the schema which columns have color images."""
  for name, column in schema.columns.items():
    if column.kind is examples.Image and name not in schema.colored:
      value = example.values[name]
      if not all(map(_is_gray, value if column.is_list else [value])):
        schema.colored.add(name)


def count(schema: schema_lib.Schema, column: str) -> int:
  """Returns the number of channels of a column's images."""
  return 3 if column in schema.colored else 1


def encode(image: examples.Image, channels: int) -> bytes:
  """Returns an image's file, re-encoded unless it has these channels."""
  import PIL.Image

  mode = images.MODES[channels]
  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    if opened.mode == mode:
      return image.content
    file = io.BytesIO()
    codec.in_mode(opened, mode).save(file, 'PNG')
  return file.getvalue()


def _is_gray(image):
  import PIL.Image

  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    return PIL.Image.getmodebase(opened.mode) == 'L'
