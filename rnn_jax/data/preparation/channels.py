"""How many channels the pictures of a column have.

TFDS wants one number for all: 1 where all are grey, else 3. A picture that has
others (a palette, transparency, 16 bits a pixel) is coded again, as PNG.
"""

import io

from rnn_jax.data.images import codec
from rnn_jax.data.images import images
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import schema as schema_lib


def note(schema: schema_lib.Schema, example: examples.Example) -> None:
  """Notes the columns that hold a picture with colours."""
  for name, column in schema.columns.items():
    if column.kind is examples.Image and name not in schema.colored:
      value = example.values[name]
      if not all(map(_is_grey, value if column.is_list else [value])):
        schema.colored.add(name)


def of(schema: schema_lib.Schema, column: str) -> int:
  """Returns the channels of a column's pictures."""
  return 3 if column in schema.colored else 1


def encode(image: examples.Image, channels: int) -> bytes:
  """Returns a picture's file: its own if it has so many channels."""
  import PIL.Image

  mode = images.MODES[channels]
  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    if opened.mode == mode:
      return image.content
    file = io.BytesIO()
    codec.in_mode(opened, mode).save(file, 'PNG')
  return file.getvalue()


def _is_grey(image):
  import PIL.Image

  with PIL.Image.open(io.BytesIO(image.content)) as opened:
    return PIL.Image.getmodebase(opened.mode) == 'L'
