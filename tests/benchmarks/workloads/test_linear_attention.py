"""Others' recurrences have our numbers at the same arguments."""

import pytest

from benchmarks.workloads import linear_attention


@pytest.mark.peers
@pytest.mark.parametrize(
  ('rule', 'form'),
  (('gla', 'recurrent'), ('kda', 'recurrent'), ('kda', 'chunk')),
)
def test_naive_forms_have_our_outputs(rule, form):
  row = linear_attention.fla(1, (2, 64, 2, 4, 3), rule, form, True)
  assert row['difference'] < 2e-6  # measured: 2e-7
