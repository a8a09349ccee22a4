"""The tables of schedules; GPipe against all layers at once."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.ops import devices
from rnn_jax.parallel import pipeline
from tests.parallel import pipelines
from tests.support import virtual

SIZES = [(n, count) for n in (1, 2, 4, 5) for count in (1, 2, 3, 8, 16)]


@pytest.fixture(scope='module')
def measured():
  return virtual.call('tests.parallel.pipelines', 'measure_gpipe')


def times(table):
  """Returns {(stage, 'F3'): slot}; each must come once."""
  pairs = [
    ((stage, name), slot)
    for slot, names in enumerate(table)
    for stage, name in enumerate(names)
    if name != '-'
  ]
  assert len(pairs) == len(dict(pairs))
  return dict(pairs)


@pytest.mark.parametrize('schedule', pipeline.SCHEDULES)
def test_each_pass_waits_for_what_it_reads(schedule):
  for n, count in SIZES:
    at = times(pipelines.table(n, count, schedule))
    assert len(at) == 2 * n * count
    for stage in range(n):
      for m in range(count):
        forward, backward = at[stage, f'F{m}'], at[stage, f'B{m}']
        assert forward < backward
        if stage:
          assert at[stage - 1, f'F{m}'] < forward
          assert backward < at[stage - 1, f'B{m}']


@pytest.mark.parametrize('schedule', pipeline.SCHEDULES)
def test_the_bubble_is_the_idle_fraction_of_each_stage(schedule):
  for n, count in SIZES:
    table = pipelines.table(n, count, schedule)
    assert len(table) == 2 * (count + n - 1)
    for names in zip(*table, strict=True):
      idle = names.count('-') / len(table)
      assert idle == pytest.approx(
        pipeline.bubble_fraction(n, count), abs=1e-12
      )


@pytest.mark.parametrize(
  ('schedule', 'stored'),
  (
    ('gpipe', lambda n, count, stage: count),
    ('1f1b', lambda n, count, stage: min(count, 2 * (n - 1 - stage) + 1)),
  ),
)
def test_micro_batches_that_a_stage_stores(schedule, stored):
  for n, count in SIZES:
    table = pipelines.table(n, count, schedule)
    for stage, names in enumerate(zip(*table, strict=True)):
      in_flight, most = 0, 0
      for name in names:
        in_flight += name.startswith('F') - name.startswith('B')
        most = max(most, in_flight)
      assert most == stored(n, count, stage)


def test_wrong_arguments_are_refused():
  inputs = devices.StageInputs(jnp.zeros((6, 2, 3)), None)
  with pytest.raises(ValueError, match='micro_batches=4.* 6 rows'):
    pipeline.gpipe(pipelines.stage, None, inputs, 4)


def test_one_stage_needs_no_mesh():
  params, _, x, state, extra = pipelines.draw()
  inputs = devices.StageInputs(x, state, extra, jax.random.key(1))

  @jax.jit
  def run(x):
    got = pipeline.gpipe(pipelines.stage, params, inputs._replace(x_BxLxD=x))
    key = jax.random.fold_in(inputs.key, 0)
    return got, pipelines.stage(params, x, state, extra, key)

  got, wanted = run(x)
  assert pipelines.error(got, wanted) < 1e-6  # measured: 0
  text = run.lower(x).compile().as_text()
  assert 'collective' not in text and 'all-' not in text


# Measured: 1e-6 of the largest number; sums of rows in another order.
@pytest.mark.parametrize('case', pipelines.CASES)
def test_gpipe_has_the_numbers_and_gradients_of_all_layers_at_once(
  measured, case
):
  result = measured[0][case]
  assert pipelines.error(result['got'], result['wanted']) < 3e-6


@pytest.mark.parametrize('case', [c for c in pipelines.CASES if c[1] > 1])
def test_gpipe_takes_the_ticks_of_its_schedule(measured, case):
  stages, count, _ = case
  slots = len(pipelines.table(stages, count, 'gpipe'))
  # The other loops are over layers: of what is the same in all ticks.
  assert measured[0][case]['ticks'].count(slots // 2) == 2


def test_only_activations_are_communicated(measured):
  text = measured[0][2, 2, 1]['text']
  assert 'collective-permute' in text and 'all-gather' not in text
  # Three ticks, two layers: autodiff stores activations, but no kernels.
  assert 'f32[3,2,8,4,5]' in text and 'f32[3,2,5,5]' not in text


def test_the_memory_of_gpipe_grows_with_the_micro_batches(measured):
  few, many = measured[1]
  assert many > 2.5 * few
