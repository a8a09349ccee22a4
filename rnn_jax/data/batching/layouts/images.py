"""Batches of images: one shape, in the order of the windows."""

import dataclasses
from typing import ClassVar

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import layout as layout_lib

lengths = layout_lib.longest


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  length: int = config_lib.option(1, minimum=1)
  image: config_lib.Image = config_lib.Image()

  excludes: ClassVar[tuple[str, ...]] = (
    "data.tokenizer!='bytes'",
    'data.curriculum',
  )
  holds_images: ClassVar[bool] = True
  pads: ClassVar[bool] = False

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    for key, value, wanted in (
      ('data.length', self.length, (1,)),
      ('evaluate.length', config.evaluate.length, (0, 1)),
    ):
      if value not in wanted:
        errors.refuse(
          key, value, f'an image is a row of one step: give {wanted[-1]}'
        )
    _check_image(self.image)


def plan(block: layout_lib.Block) -> layout_lib.Laid:
  """Returns the plan of images, in turn; see the package."""
  rows, _ = block.shapes[0]
  items = np.arange(len(block.sizes))
  return layout_lib.one_per_row(
    ((0, items[n : n + rows]) for n in range(0, len(items), rows)), block.sizes
  )


def _check_image(image):
  if image.crop >= image.size:
    errors.refuse(
      'data.image.crop',
      image.crop,
      f'nothing of an image would be left: give less than {image.size} pixels',
    )
  for name in ('mean', 'std'):
    given = getattr(image, name)
    if len(given) not in (1, image.channels):
      errors.refuse(
        f'data.image.{name}',
        given,
        f'give one number, or one for each of the {image.channels} channels',
      )
  if min(image.std) <= 0:
    errors.refuse('data.image.std', image.std, 'give numbers above 0')
