"""Each choice and range refuses what is outside, with what is inside."""

import re

import flax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.config import ranges
from tests.config import test_config


@pytest.mark.parametrize(('key', 'choices'), ranges.CHOICES.items())
def test_a_word_that_is_no_choice_is_refused_with_the_choices(key, choices):
  message = test_config.refusal(
    test_config.changed(**{key.replace('.', '__'): 'other'})
  )
  assert message == f"{key}='other': choose one of {choices}"


@pytest.mark.parametrize(('key', 'least'), ranges.AT_LEAST.items())
def test_a_number_below_its_least_is_refused(key, least):
  name = key.replace('.', '__')
  message = test_config.refusal(test_config.changed(**{name: least - 1}))
  assert re.fullmatch(rf'{key}=-?[\d.]+: give {least} or more', message)


@pytest.mark.parametrize(('key', 'most'), ranges.AT_MOST.items())
def test_a_number_above_its_most_is_refused(key, most):
  name = key.replace('.', '__')
  config_lib.parse(test_config.changed(**{name: most}))
  for value in (most + 1, 2**64):
    message = test_config.refusal(test_config.changed(**{name: value}))
    assert message == f'{key}={value}: give {most} or less'


def test_every_seed_has_a_least_and_a_most():
  flat = flax.traverse_util.flatten_dict(test_config.changed(), sep='.')
  seeds = {key for key in flat if key.endswith('.seed')}
  assert seeds == {'train.seed', 'data.synthetic.seed'}
  assert seeds <= {*ranges.AT_MOST} and seeds <= {*ranges.AT_LEAST}


@pytest.mark.parametrize('key', ranges.BELOW_ONE)
def test_a_share_outside_0_to_1_is_refused(key):
  for value in (-0.1, 1.0):
    message = test_config.refusal(
      test_config.changed(**{key.replace('.', '__'): value})
    )
    assert message == f'{key}={value}: give a number in [0, 1)'
