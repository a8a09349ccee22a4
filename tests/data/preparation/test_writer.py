"""Images of every mode survive, read by plain TFDS and by our sources."""

import PIL.Image
import pytest
import tensorflow_datasets

from rnn_jax import config
from rnn_jax.data.preparation import prepare
from rnn_jax.data.preparation import requests
from rnn_jax.data.sources import tfds

COLORS = {
  'L': 77,
  '1': 255,
  'P': 1,
  'I;16': 77 * 256 + 5,
  'LA': (77, 128),
  'RGB': (10, 200, 30),
  'RGBA': (10, 200, 30, 128),
}


def make(mode, number):
  """Returns an image of one color, except for a black pixel at `number`."""
  image = PIL.Image.new(mode, (8, 4), COLORS[mode])
  if mode == 'P':
    image.putpalette([0, 0, 0, 10, 200, 30])
  black = (0,) * (len(image.getbands()) - 1) + (255,)
  image.putpixel((number, 0), black if mode in ('LA', 'RGBA') else 0)
  return image


def write(folder, modes):
  """Prepares an image of each mode, alternately of two classes."""
  for number, mode in enumerate(modes):
    path = folder / 'raw' / 'train' / 'ab'[number % 2] / f'{number}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    make(mode, number).save(path)
  path = str(folder / 'raw')
  request = requests.Request('toy', str(folder), (path,))
  prepare.prepare(request)
  builder = tensorflow_datasets.builder_from_directory(request.folder)
  images = builder.as_data_source('train')
  return [example['image'] for example in images]


@pytest.mark.parametrize('mode', COLORS)
def test_images_of_one_mode(tmp_path, mode):
  gray = mode in ('L', '1', 'I;16', 'LA')
  for number, pixels in enumerate(write(tmp_path, [mode, mode])):
    assert pixels.shape == (4, 8, 1 if gray else 3)
    value = {'1': [255]}.get(mode, [77]) if gray else [10, 200, 30]
    assert pixels[1, 1].tolist() == value
    assert not pixels[0, number].any()


def test_gray_images_among_color_images_have_three_channels(tmp_path):
  images = write(tmp_path, COLORS)
  assert [pixels.shape for pixels in images] == [(4, 8, 3)] * len(COLORS)
  data = config.section(
    'data',
    source='tfds:toy',
    layout='images',
    data_dir=str(tmp_path),
    field='image',
    splits=(50, 50, 0),
    image=config.Image(size=4, channels=1, resize=True),
  )
  documents = tfds.load(data)
  read = [documents['train'].read(n) for n in range(len(documents['train']))]
  assert {len(content) for content in read} == {16}
