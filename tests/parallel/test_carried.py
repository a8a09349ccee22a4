"""Meshes with a state from batch to batch, checkpoints from one to another."""

import pytest

from tests.parallel import forms
from tests.support import virtual

COLLECTIVES = {
  'zero 3 and pipe': {
    'all-reduce',
    'all-gather',
    'reduce-scatter',
    'collective-permute',
  },
  'sequence and tensor': {'all-reduce', 'collective-permute'},
}


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.parallel.forms', 'measure_carried')


@pytest.mark.parametrize('form', forms.FORMS_OF[forms.CARRIED])
def test_a_mesh_gives_the_parameters_of_one_device(results, form):
  result = results[f'{forms.CARRIED}, {form}']
  # As in test_forms.py.
  assert result['params'] < 2e-6
  assert result['losses'] < 3e-6
  assert {*result['collectives']} == COLLECTIVES[form]


@pytest.mark.parametrize('number', range(3))
def test_a_checkpoint_resumes_on_another_mesh(results, number):
  same, difference = results['restored'][number]
  assert same
  assert difference < 2e-6  # measured: 2e-7
