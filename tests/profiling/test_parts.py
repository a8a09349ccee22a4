"""The parts of a step's memory against sizes that follow from the config."""

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.profiling import parts
from rnn_jax.profiling import subject as subject_lib
from rnn_jax.training import program_memory
from tests import tiny

ROWS = 16


def measure(**changes):
  raw = tiny.raw_config('unused')
  with raw.unlocked():
    for key, value in changes.items():
      section, name = key.split('__')
      raw[section][name] = value
  subject = subject_lib.make(config_lib.parse(raw))
  return subject, parts.measure(subject, ROWS)


@pytest.fixture(name='plain', scope='module')
def _plain():
  return measure()


def test_arrays_are_those_of_the_state(plain):
  subject, found = plain
  state = subject.steps.init(0, ROWS)
  assert found.arrays == {
    name: sum(x.nbytes for x in jax.tree.leaves(state[key]))
    for name, key in (
      ('parameters', 'params'),
      ('gradients', 'params'),
      ('optimizer state', 'optimizer'),
    )
  }


def test_gradients_leave_forward_and_backward(plain):
  _, found = plain
  params = found.arrays['parameters']
  forward, backward = (
    found.programs[n] for n in (parts.FORWARD, parts.BACKWARD)
  )
  assert forward.outputs < params / 2 < params <= backward.outputs
  assert forward.total < backward.total
  step = found.programs[parts.STEP]
  assert step == program_memory.of(found.step)
  assert step.arguments > params + found.arrays['optimizer state']
  assert (
    found.costs[parts.BACKWARD]['flops'] > found.costs[parts.FORWARD]['flops']
  )


def test_what_is_kept_shrinks_with_segments_and_micro_batches(plain):
  _, whole = plain
  # Each layer's input, at least, is kept of every step of every row.
  assert whole.kept > 4 * ROWS * 32 * 16 * 2
  _, segments = measure(remat__segment=8)
  assert segments.kept < whole.kept / 1.5
  _, micro = measure(train__accumulate=4)
  assert micro.kept == pytest.approx(whole.kept / 4, rel=0.1)
