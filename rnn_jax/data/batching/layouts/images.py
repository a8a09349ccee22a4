"""Batches of images: one shape, in the order of the examples."""

import dataclasses
from typing import Any
from typing import ClassVar

import grain

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import loader
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching.layouts import base
from rnn_jax.data.images import images

lengths = base.longest


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the layout, of section `data` of the config."""

  length: int = config_lib.option(1, least=1)
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


def make(
  examples: loader.Loader,
  shapes: tuple[tuple[int, int], ...],
  data: Config,
  seed: int | None = None,
  corpus: Any = None,
) -> grain.DatasetIterator:
  """Returns the batches; the arguments are those of the package's `make`."""
  del seed, corpus
  rows, _ = shapes[0]
  return Batches(examples, rows, data.image)


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


class Batches(grain.DatasetIterator):
  """Batches of `rows` images; the last of a pass may have padding."""

  def __init__(
    self, examples: loader.Loader, rows: int, image: config_lib.Image
  ) -> None:
    super().__init__(examples)
    self._examples = examples
    self._rows = rows
    self._image = image

  def __next__(self) -> batch_lib.Batch:
    batch = images.blank(self._rows, self._image)
    for row in range(self._rows):
      try:
        _, ids = next(self._examples)
      except StopIteration:
        if not row:
          raise
        break
      images.write(batch, row, ids)
    return batch

  def get_state(self) -> dict[str, Any]:
    return {'examples': self._examples.get_state()}

  def set_state(self, state: dict[str, Any]) -> None:
    self._examples.set_state(state['examples'])
