"""Each architecture trains as the authors' code does, from loss to weights."""

import pytest

from benchmarks.suites import same_training

pytestmark = pytest.mark.peers


@pytest.mark.parametrize(
  'name', [*same_training.SIZES, *same_training.VARIANTS]
)
def test_it_trains_as_the_authors_code(name):
  row = same_training.trained(name)
  assert row['last_loss'] < row['first_loss'] - 1  # it has learned
  for key, most in same_training.LIMITS.items():
    assert row[key] < most, key
