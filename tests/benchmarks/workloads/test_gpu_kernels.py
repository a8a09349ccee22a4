"""The kernels of a GPU: their inputs and errors, on a CPU."""

import pytest

from benchmarks.harness import rehearsal
from benchmarks.workloads import gpu_kernels
from rnn_jax.system import target

SHAPE = (1, 32, 1, 64, 64)


def test_a_peer_is_checked_as_ours():
  row = gpu_kernels.check('chunked', 20)
  assert {*row['errors']} >= {'y', 'state', 'd_q', 'd_loga', 'd_state'}
  assert 0 < max(row['errors'].values()) < row['bound']


@pytest.mark.cuda
@pytest.mark.slow
def test_a_rehearsal_compiles_and_does_not_run():
  with target.using('h100'), pytest.raises(rehearsal.Compiled) as raised:
    gpu_kernels.passes(1, SHAPE, 'pallas')
  values = raised.value.values
  assert values['kernels'] >= 5 and values['spilled'] == 0
  assert 'median' not in values


def test_the_delta_rule_is_checked_and_both_passes_timed():
  row = gpu_kernels.check_delta('chunked', 20)
  assert {*row['errors']} >= {'y', 'state', 'd_beta', 'd_loga', 'd_state'}
  assert 0 < max(row['errors'].values()) < row['bound']
  row = gpu_kernels.passes(2, SHAPE, 'chunked', rule='delta')
  assert row['repeats'] == row['forward']['repeats'] == 2
  assert row['median'] > 0 and row['forward']['median'] > 0
