"""The rules of a config for pictures, task 'image_classification'."""

from rnn_jax import errors


def check(config):
  """Checks a Config whose task is to classify pictures.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  _check_batches(config)
  _check_pictures(config.data.image)
  _check_model(config)


def _check_batches(config):
  data = config.data
  for key, value, wanted in (
    ('data.length', data.length, (1,)),
    ('evaluate.length', config.evaluate.length, (0, 1)),
    ('remat.segment', config.remat.segment, (0, 1)),
  ):
    if value not in wanted:
      errors.refuse(
        key, value, f'a picture is a row of one step: give {wanted[-1]}'
      )
  if data.tokenizer != 'bytes':
    errors.refuse(
      'data.tokenizer', data.tokenizer, "pixels are 'bytes': give that"
    )
  if data.curriculum:
    errors.refuse(
      'data.curriculum', data.curriculum, "pictures have none: give ''"
    )


def _check_pictures(image):
  if image.channels not in (1, 3):
    errors.refuse(
      'data.image.channels', image.channels, 'give 3, or 1 for grey'
    )
  if image.crop >= image.size:
    errors.refuse(
      'data.image.crop',
      image.crop,
      f'nothing of a picture would be left: give less than {image.size} pixels',
    )
  for name in ('mean', 'deviation'):
    values = getattr(image, name)
    if len(values) not in (1, image.channels):
      errors.refuse(
        f'data.image.{name}',
        values,
        f'give one number, or one for each of {image.channels} channels',
      )
  if min(image.deviation) <= 0:
    errors.refuse(
      'data.image.deviation', image.deviation, 'give numbers above 0'
    )


def _check_model(config):
  model, cell, image = config.model, config.cell, config.data.image
  if image.size % config.vision.patch:
    errors.refuse(
      'vision.patch',
      config.vision.patch,
      f'it must divide data.image.size={image.size}',
    )
  if model.embedding_width not in (0, model.width):
    errors.refuse(
      'model.embedding_width',
      model.embedding_width,
      f'patches are model.width={model.width} wide: give 0',
    )
  if model.cell == 'attention' and cell.heads * cell.head_width != model.width:
    errors.refuse(
      'cell.heads',
      cell.heads,
      f'with cell.head_width={cell.head_width} they are '
      f'{cell.heads * cell.head_width} wide, and model.width={model.width}: '
      'give heads that divide it, and cell.head_width = width / heads',
    )
