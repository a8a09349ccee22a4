"""Images from files to batches."""

import dataclasses
import io

import numpy as np
import PIL.Image
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import pipeline
from rnn_jax.data.images import images
from tests.support import corpora

GRAY = config.Image(size=4, channels=1)


def encode(pixels, kind='PNG'):
  file = io.BytesIO()
  PIL.Image.fromarray(pixels).save(file, kind)
  return file.getvalue()


def digits(**changes):
  """Returns the config of the digits."""
  image = {'size': 8, 'channels': 1, 'crop': 1, 'flip': True}
  data = {
    'source': 'digits',
    'layout': 'images',
    'length': 1,
    'classes': tuple('0123456789'),
    'splits': (90, 5, 5),
    'batch_size': 16,
    'workers': 0,
    'image': config.Image(**image | changes.pop('image', {})),
    'evaluate': {'batch_size': 32},
  }
  made = corpora.configure(**data | changes)
  task = config.section('task', name='image_classification')
  return dataclasses.replace(made, task=task)


def open_corpus(made, folder):
  return corpus_lib.Corpus.open(made, folder)


def assert_same(batches, others):
  for batch, other in zip(batches, others, strict=True):
    for name in ('image_BxHxWxC', 'label_B', 'weights_BxL'):
      np.testing.assert_array_equal(getattr(batch, name), getattr(other, name))


def test_an_image_is_decoded_with_the_requested_channels():
  rng = np.random.default_rng(0)
  color = rng.integers(0, 256, (4, 4, 3), np.uint8)
  image = dataclasses.replace(GRAY, channels=3)
  pixels = images.decode(encode(color), image, 'a')
  np.testing.assert_array_equal(pixels, color)
  gray = images.decode(encode(color), GRAY, 'a')
  luma = color @ [0.299, 0.587, 0.114]
  assert gray.shape == (4, 4, 1)
  np.testing.assert_allclose(gray[..., 0], luma, rtol=0, atol=1)


def test_another_size_is_refused_or_resized():
  even = np.full((6, 9), 77, np.uint8)
  with pytest.raises(errors.InputError) as caught:
    images.decode(encode(even), GRAY, 'a.zip: cat/1.png')
  assert str(caught.value) == (
    'a.zip: cat/1.png: 9 x 6 pixels, and data.image.size=4: give that size, '
    'or data.image.resize=True'
  )
  resized = dataclasses.replace(GRAY, resize=True)
  pixels = images.decode(encode(even), resized, 'a')
  np.testing.assert_array_equal(pixels, np.full((4, 4, 1), 77))


def test_16_bit_pixels_keep_the_upper_8_bits():
  pixels = np.array([[0, 255, 256, 65_535]] * 4, np.uint16)
  decoded = images.decode(encode(pixels), GRAY, 'a')
  np.testing.assert_array_equal(decoded[0, :, 0], [0, 0, 1, 255])


@pytest.mark.parametrize('content', (b'not an image', None))
def test_an_unreadable_image_is_named(content):
  whole = encode(np.zeros((4, 4), np.uint8))
  content = content or whole[: len(whole) // 2]
  with pytest.raises(errors.InputError, match='^b.png: cannot be read as an '):
    images.decode(content, GRAY, 'b.png')


def test_augmentation_moves_and_mirrors_evenly():
  image = dataclasses.replace(GRAY, crop=1, flip=True)
  original = np.arange(1, 17, dtype=np.uint8).reshape(4, 4, 1)
  padded = np.pad(original, [(1, 1), (1, 1), (0, 0)])
  possible = {
    padded[i : i + 4, j : j + 4][:, ::way].tobytes()
    for i in range(3)
    for j in range(3)
    for way in (1, -1)
  }
  augmented = [
    images.augment(original, image, np.random.default_rng(n)).tobytes()
    for n in range(300)
  ]
  assert len(possible) == 18 and {*augmented} == possible
  still = images.augment(original, GRAY, np.random.default_rng(0))
  np.testing.assert_array_equal(still, original)


def test_a_held_out_pass_shows_every_image_once_unchanged(tmp_path):
  made = digits()
  corpus = open_corpus(made, tmp_path)
  held_out = corpus.documents['test']
  batches = [*pipeline.heldout_batches(corpus, made, 'test')]
  weights = np.concatenate([batch.weights_BxL[:, 0] for batch in batches])
  real = weights > 0
  assert real.sum() == len(held_out) and len(real) % 32 == 0
  seen = np.concatenate([batch.image_BxHxWxC for batch in batches])[real]
  labels = np.concatenate([batch.label_B for batch in batches])[real]
  np.testing.assert_array_equal(labels, held_out.labels)
  for n in (0, len(held_out) - 1):
    assert seen[n].tobytes() == held_out.read(n)


def test_epochs_show_every_image_in_different_ways(tmp_path):
  made = digits(splits=(1, 0, 99), batch_size=17)  # one batch an epoch
  corpus = open_corpus(made, tmp_path)
  train = corpus.documents['train']
  assert len(train) == 17 + 1
  made = digits(splits=(1, 0, 99), batch_size=18)
  batches = pipeline.training_batches(corpus, made)
  first, second = corpora.take(batches, 2)
  batches.close()
  assert sorted(first.label_B) == sorted(second.label_B) == sorted(train.labels)
  pixels = [{row.tobytes() for row in b.image_BxHxWxC} for b in (first, second)]
  assert pixels[0] != pixels[1]


@pytest.mark.slow
def test_an_interrupted_run_resumes_with_the_same_images(tmp_path):
  made = digits()
  corpus = open_corpus(made, tmp_path)
  whole = pipeline.training_batches(corpus, digits())
  wanted = corpora.take(whole, 5)
  whole.close()
  cut = pipeline.training_batches(corpus, made)
  corpora.take(cut, 2)
  state = cut.get_state()
  cut.close()
  resumed = pipeline.training_batches(corpus, digits(workers=1))
  resumed.set_state(state)
  assert_same(corpora.take(resumed, 3), wanted[2:])
  resumed.close()


def test_the_seed_decides_what_is_seen(tmp_path):
  seen = []
  for seed in (0, 1):
    made = digits(train={'seed': seed})
    corpus = open_corpus(made, tmp_path)
    batches = pipeline.training_batches(corpus, made)
    seen.append(next(batches).image_BxHxWxC)
    batches.close()
  assert not np.array_equal(*seen)


def test_a_line_describes_the_batches(tmp_path):
  made = digits()
  summary = pipeline.describe(open_corpus(made, tmp_path), made)
  assert summary == 'images, 1 shape: 16x1, no padding'


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'image': {'size': 4}}, "data.source='digits' has 8 x 8 gray pixels"),
    ({'classes': ('a', 'b')}, "data.source='digits' has .*: give those"),
    (
      {'source': 'recall'},
      "data.source='recall' has no images of data.image.size=8",
    ),
  ),
)
def test_other_sources_and_sizes_are_refused(tmp_path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    open_corpus(digits(**changes), tmp_path)
