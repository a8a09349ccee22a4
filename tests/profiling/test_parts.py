"""The parts of a step's memory against sizes that follow from the config."""

import jax
import pytest

from rnn_jax.profiling import parts
from rnn_jax.system import target
from tests.profiling import test_workload

ROWS = 16


@pytest.fixture(name='plain', scope='module')
def _plain():
  workload = test_workload.make()
  return workload, parts.measure(workload, ROWS)


def test_arrays_are_those_of_the_state(plain):
  workload, result = plain
  state = workload.programs.states.init(ROWS)
  assert result.arrays == {
    name: sum(x.nbytes for x in jax.tree.leaves(getattr(state, key)))
    for name, key in (
      ('parameters', 'params'),
      ('gradients', 'params'),
      ('optimizer state', 'opt_state'),
    )
  }


def test_gradients_leave_forward_and_backward(plain):
  _, result = plain
  params = result.arrays['parameters']
  forward, backward = (
    result.programs[n] for n in (parts.FORWARD, parts.BACKWARD)
  )
  assert forward.outputs < params / 2 < params <= backward.outputs
  assert forward.total < backward.total
  step = result.programs[parts.STEP]
  assert step == target.memory(result.step)
  assert step.arguments > params + result.arrays['optimizer state']
  assert (
    result.costs[parts.BACKWARD]['flops'] > result.costs[parts.FORWARD]['flops']
  )


def test_what_is_kept_shrinks_with_segments_and_micro_batches(plain):
  _, whole = plain
  # Each layer's input, at least, is kept of every step of every row.
  assert whole.kept > 4 * ROWS * 32 * 16 * 2
  segments = parts.kept(test_workload.make(remat__segment=8), ROWS)
  assert segments < whole.kept / 1.5
  micro = parts.kept(test_workload.make(train__accumulate=4), ROWS)
  assert micro == pytest.approx(whole.kept / 4, rel=0.1)
