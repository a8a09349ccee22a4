"""Experts that devices share, against one device."""

import pytest

from tests.parallel import experts
from tests.support import virtual

# Of the matrix RxExDxF, 2x4x16x8.
OWN = {
  'zero 3 and expert': (2, 2, 8, 8),
  'expert, sequence and tensor': (2, 2, 16, 4),
}


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.parallel.experts', 'measure')


@pytest.mark.parametrize('form', experts.FORMS)
def test_a_mesh_gives_the_numbers_of_one_device(results, form):
  # As in test_forms.py; the sums have fewer rows.
  params, sums, own = results[form]
  assert params < 2e-6
  assert sums < 1e-5
  assert own == OWN[form]
