"""Rows sharded over devices, against oracles in float64 and one device."""

import jax
import numpy as np
import pytest

from rnn_jax.ops import gla
from rnn_jax.parallel import sequence
from rnn_jax.selfcheck import gla as selfcheck
from tests.parallel import sequence_shards
from tests.support import virtual

CLOSE = 2e-6  # measured: 1.3e-6, of the largest number of each array


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.parallel.sequence_shards', 'measure')


@pytest.mark.parametrize('case', sequence_shards.RECURRENCES)
def test_the_recurrence_of_shards_equals_the_oracle(results, case):
  errors, impl, dtype = results['recurrence'][case], case[2], case[-1]
  # Measured: 1.2e-7, with a bound of 2e-7 for 'step'; in 16 bits, 3.0e-3.
  bound = selfcheck.BOUNDS['step' if impl == 'auto' else impl]
  for name, error in errors.items():
    rounded = dtype != 'float32' and name not in selfcheck.IN_FLOAT32
    assert error.max() <= (selfcheck.BOUND_BFLOAT16 if rounded else bound), name


@pytest.mark.parametrize(
  ('kind', 'case'),
  [
    *(('convolve', x) for x in sequence_shards.CONVOLUTIONS),
    *(('attend', x) for x in sequence_shards.ATTENTIONS),
  ],
)
def test_windows_of_shards_equal_one_device_and_the_oracle(results, kind, case):
  of_one, of_oracle = results[kind][case]
  assert of_one <= CLOSE and of_oracle <= CLOSE


@pytest.mark.parametrize('case', sequence_shards.COUNTS)
def test_positions_of_shards_are_those_of_the_row(results, case):
  got, want = results['count'][case]
  for a, b in zip(got, want, strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('name', sequence_shards.CELLS)
def test_cells_with_one_step_per_device_equal_one_device(results, name):
  assert results['cells'][name] <= CLOSE


def test_a_linear_recurrence_of_shards_equals_one_device(results):
  assert results['longer'] <= CLOSE


def test_steps_through_a_sharded_row_are_refused(results):
  assert results['refusal'] == (
    "recurrence.impl='scan' steps through a row on one device, and rows are "
    "sharded over the 2 devices of the mesh's axis 'sequence': use 'auto', or "
    'mesh.sequence=1'
  )


def test_a_row_of_65536_steps_needs_a_sixth_of_the_memory_on_8_devices(results):
  long = results['long']
  allocated, of_one = long['allocated']
  # Measured: a 7.8th; half an array above an eighth.
  assert allocated * 6 <= of_one
  assert long['error'] <= CLOSE


def test_communication_does_not_grow_with_the_row(results):
  K = P = 8
  rounds, state = 1 + 3, 4 * K * P
  each_way = rounds * (state + 4 * K) + state
  # The caller then sums the gradient of the first state.
  assert results['long']['communicated'] == [2 * each_way + state] * 2


def test_without_a_mesh_the_programs_are_those_of_the_ops():
  state, sharded, starts, _ = sequence_shards.long_row(40)
  programs = [
    jax.make_jaxpr(sequence_shards.run_recurrence(f))(state, sharded, starts)
    for f in (sequence.recurrence, gla.recurrence)
  ]
  assert str(programs[0]) == str(programs[1])
