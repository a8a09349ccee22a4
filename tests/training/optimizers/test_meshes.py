"""Optimizers that need whole tensors, where devices keep shares of them."""

import pytest

from tests.support import virtual
from tests.training.optimizers import on_meshes


@pytest.fixture(scope='module')
def found():
  return virtual.call('tests.training.optimizers.on_meshes', 'measure')


OF_STEPS = [told for meshes in on_meshes.OF_STEPS.values() for told in meshes]


@pytest.mark.parametrize('name', (*on_meshes.NAMES, *OF_STEPS))
def test_shares_of_a_state_give_the_parameters_of_one_device(found, name):
  apart, _ = found[name]
  assert apart < 2e-5


@pytest.mark.parametrize('name', on_meshes.NAMES)
def test_a_device_keeps_its_share(found, name):
  assert found[name][1] < 0.25  # the vocabulary is kept whole
