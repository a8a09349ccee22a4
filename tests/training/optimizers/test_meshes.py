"""Optimizers that need whole tensors, where devices keep shards of them."""

import pytest

from tests.support import virtual
from tests.training.optimizers import on_meshes


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.training.optimizers.on_meshes', 'measure')


OF_STEPS = [label for meshes in on_meshes.OF_STEPS.values() for label in meshes]


@pytest.mark.parametrize('name', (*on_meshes.NAMES, *OF_STEPS))
def test_shards_of_a_state_give_the_parameters_of_one_device(results, name):
  apart, _ = results[name]
  assert apart < 2e-5


@pytest.mark.parametrize('name', on_meshes.NAMES)
def test_a_device_keeps_its_shard(results, name):
  assert results[name][1] < 0.25  # the vocabulary is kept whole
