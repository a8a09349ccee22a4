"""Batches that can't fit are refused before any of them is made."""

import dataclasses

import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training.memory import lower_bound


def parsed(**changes):
  raw = config_lib.default()
  config_lib.override(
    raw, {key.replace('__', '.'): value for key, value in changes.items()}
  )
  return config_lib.parse(raw)


@pytest.mark.parametrize(
  ('changes', 'named'),
  (
    ({'data__batch_size': 10**12}, r'data\.batch_size=1,000,000,000,000'),
    ({'data__length': 10**12}, r'data\.length=1,000,000,000,000'),
    ({'data__tokens_per_batch': 10**14}, r'data\.tokens_per_batch=100,0'),
    ({'data__prefetch': 10**12}, r'data\.prefetch=1,000,000,000,000'),
    ({'data__workers': 10**8}, r'data\.workers=100,000,000'),
    ({'evaluate__batch_size': 10**12}, r'evaluate\.batch_size=1,000,0'),
    ({'model__width': 10**12}, r'model\.width=1,000,000,000,000'),
  ),
)
def test_the_key_is_named(changes, named):
  with pytest.raises(errors.InputError, match=named):
    lower_bound.check(parsed(**changes))


def test_usual_batches_pass():
  lower_bound.check(parsed())


def test_pictures_count_by_their_pixels():
  raw = config_lib.default(
    task='image_classification', source='digits', layout='images'
  )
  raw.data.classes = tuple('0123456789')
  raw.data.image.size = 8
  raw.data.image.channels = 1
  config = config_lib.parse(raw)
  lower_bound.check(config)
  data = dataclasses.replace(config.data, batch_size=10**12)
  with pytest.raises(errors.InputError, match=r'data\.batch_size=.* pixels'):
    lower_bound.check(dataclasses.replace(config, data=data))
