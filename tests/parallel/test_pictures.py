"""Pictures, and layers with the same parameters, on meshes of devices."""

import pytest

from tests import virtual
from tests.parallel import pictures

CASES = [
  f'{model}, {form}'
  for model, forms in pictures.FORMS.items()
  for form in forms
]


@pytest.fixture(scope='module')
def found():
  return virtual.call('tests.parallel.pictures', 'measure')


@pytest.mark.parametrize('case', CASES)
def test_a_mesh_gives_the_parameters_of_one_device(found, case):
  params, losses = found[case]
  # Measured after 3 steps: MEASURED_P and MEASURED_L.
  assert params < 3e-6
  assert losses < 3e-6
