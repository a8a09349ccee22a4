"""1F1B against all layers at once, its ticks and its memory."""

import jax
import numpy as np
import pytest

from rnn_jax.ops import devices
from rnn_jax.parallel import pipeline_flush
from tests.parallel import pipelines
from tests.support import virtual


@pytest.fixture(scope='module')
def measured():
  return virtual.call('tests.parallel.pipelines', 'measure_1f1b')


# Measured: 1.9e-6 of the largest number; sums of rows in another order.
@pytest.mark.parametrize('case', pipelines.CASES)
def test_1f1b_has_the_numbers_and_gradients_of_all_layers_at_once(
  measured, case
):
  result = measured[0][case]
  (got, (*gradients, of_state)), (wanted, (*others, _)) = (
    result['got'],
    result['wanted'],
  )
  assert pipelines.error((got, gradients), (wanted, others)) < 3e-6
  assert not np.any(of_state)  # by contract: states have no gradients


@pytest.mark.parametrize('case', pipelines.CASES)
def test_1f1b_takes_the_ticks_of_its_schedule(measured, case):
  stages, count, _ = case
  ticks = measured[0][case]['ticks']
  assert ticks == [stages - 1, count, stages - 1]
  fill, both, drain = ticks
  table = pipelines.table(stages, count, '1f1b')
  assert fill + 2 * both + drain == len(table)


def test_without_gradients_it_has_no_backward_pass(measured):
  ((value, sums), state), ticks = measured[1]
  wanted, (wanted_sums, wanted_state) = pipelines.reference(4, 1)[0]
  got = 0.5 * value, sums, state
  # Measured: 7e-7
  assert pipelines.error(got, (wanted, wanted_sums, wanted_state)) < 3e-6
  assert ticks == [4 + 2 - 1, 4]  # all stages forward, and the loss


def test_only_activations_are_communicated(measured):
  text = measured[0][2, 2, 1]['text']
  assert 'collective-permute' in text and 'all-gather' not in text


def test_the_memory_of_1f1b_does_not_grow_with_the_micro_batches(measured):
  few, many = measured[2]
  # Counters and schedules of the loops may differ, but not rows: the inputs
  # of one micro-batch have 5 KiB.
  assert abs(many - few) < 1024


def test_one_stage_needs_no_mesh():
  params, head, x, state, extra = pipelines.draw()
  inputs = devices.StageInputs(x, state, extra, jax.random.key(1))

  @jax.jit
  def run(params, head, x):
    return pipeline_flush.objective(
      pipelines.stage,
      pipelines.loss,
      params,
      head,
      inputs._replace(x_BxLxD=x),
      4,
    )

  differentiate = jax.value_and_grad(run, (0, 1, 2), has_aux=True)
  (value, (sums, new)), gradients = differentiate(params, head, x)
  wanted, wanted_gradients = pipelines.reference(4, 1)
  got = 0.5 * value, (sums, new), [0.5 * a for a in jax.tree.leaves(gradients)]
  others = jax.tree.leaves(wanted_gradients[:3])
  assert pipelines.error(got, (*wanted, others)) < 3e-6  # measured: 4e-7
