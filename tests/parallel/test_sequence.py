"""Rows cut over devices against oracles in float64 and against one device."""

import jax
import numpy as np
import pytest

from rnn_jax import selfcheck
from rnn_jax.ops import gla
from rnn_jax.parallel import sequence
from tests.parallel import sequence_shards
from tests.support import virtual

CLOSE = 2e-6  # measured: 1.3e-6, of the largest number of each array


@pytest.fixture(scope='module')
def found():
  return virtual.call('tests.parallel.sequence_shards', 'measure')


@pytest.fixture(scope='module')
def long():
  # With XLA's passes: what a long row takes is theirs to decide.
  return virtual.call(
    'tests.parallel.sequence_shards', 'long_row_findings', flags=()
  )


@pytest.mark.parametrize(
  'case', (*sequence_shards.RECURRENCES, sequence_shards.PIECES)
)
def test_the_recurrence_of_stretches_equals_the_oracle(found, case):
  errors, impl, dtype = found['recurrence'][case], case[2], case[-1]
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
def test_windows_of_stretches_equal_one_device_and_the_oracle(
  found, kind, case
):
  of_one, of_oracle = found[kind][case]
  assert of_one <= CLOSE and of_oracle <= CLOSE


@pytest.mark.parametrize('case', sequence_shards.COUNTS)
def test_positions_of_stretches_are_those_of_the_row(found, case):
  got, want = found['count'][case]
  for a, b in zip(got, want, strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('name', sequence_shards.CELLS)
def test_cells_whose_devices_have_one_step_each_equal_one_device(found, name):
  assert found['cells'][name] <= CLOSE


def test_a_linear_recurrence_of_stretches_equals_one_device(found):
  assert found['longer'] <= CLOSE


def test_steps_of_a_row_that_is_cut_are_refused(found):
  assert found['refusal'] == (
    "recurrence.impl='scan' steps through a row on one device, and rows are "
    "sharded over the 2 devices of the mesh's axis 'sequence': use 'auto', or "
    'mesh.sequence=1'
  )


def test_a_row_of_65536_steps_needs_a_sixth_of_the_memory_on_8_devices(long):
  made, of_one = long['made']
  # Measured: a 7.0th, with jax 0.12 a 6.8th; half an array beside an eighth.
  assert made * 6 <= of_one
  assert long['error'] <= CLOSE


def test_what_devices_tell_each_other_does_not_grow_with_the_row(long):
  K = P = 8
  rounds, state = 1 + 3, 4 * K * P
  each_way = rounds * (state + 4 * K) + state
  # The gradient of the first state is then added up by who asked for it.
  assert long['moved'] == [2 * each_way + state] * 2


def test_without_a_mesh_the_programs_are_those_of_the_ops():
  state, cut, starts, _ = sequence_shards.long_row(40)
  programs = [
    jax.make_jaxpr(sequence_shards.run_recurrence(f))(state, cut, starts)
    for f in (sequence.recurrence, gla.recurrence)
  ]
  assert str(programs[0]) == str(programs[1])
