"""The loss scale's transitions, and float16 steps that need them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.runs import metrics
from rnn_jax.training import loop
from rnn_jax.training import loss_scale
from tests.support import shared
from tests.support import tiny
from tests.training import test_step

ONE = (('model.layers', 1),)
HALF = ('train.precision', 'float16'), ('train.loss_scale_steps', 2)


def at(scale, good=0):
  return loss_scale.LossScale(jnp.float32(scale), jnp.int32(good))


def after(state, *finite, steps=3):
  """Returns (scale, good, lowered) after steps that were finite or not."""
  for one in finite:
    state, lowered = loss_scale.update(state, jnp.bool_(one), steps)
  assert (state.scale.dtype, state.good.dtype) == (jnp.float32, jnp.int32)
  return float(state.scale), int(state.good), bool(lowered)


def test_it_halves_on_overflow_and_doubles_after_good_steps_in_a_row():
  assert after(at(8), False) == (4, 0, True)
  assert after(at(8), True, True) == (8, 2, False)
  assert after(at(8), True, True, True) == (16, 0, False)
  assert after(at(8), True, True, False, True, True) == (4, 2, False)
  assert after(at(8), *[True] * 7) == (32, 1, False)


def test_it_ends_at_1_where_a_skip_is_no_longer_its_fault():
  assert after(at(2, 2), False) == (1, 0, True)
  assert after(at(1, 2), False) == (1, 0, False)
  assert after(at(1), False, True, True, True) == (2, 0, False)


def test_doubling_ends_at_the_most_and_a_start_above_it_can_fall():
  most = loss_scale.MAX_SCALE
  assert after(at(most), True, True, True) == (most, 0, False)
  assert after(at(most / 2), True, True, True) == (most, 0, False)
  assert after(at(4 * most), True, True, True) == (4 * most, 0, False)
  assert after(at(4 * most), False) == (2 * most, 0, True)


@pytest.mark.parametrize('tokens', (1, 2, 255, 256, 257, 3 * 2**20))
def test_the_factor_is_a_power_of_two_near_the_scale_over_the_tokens(tokens):
  factor = float(loss_scale.factor(at(1024), tokens))
  assert np.log2(factor) % 1 == 0
  assert 512 < factor * tokens <= 1024


def test_other_formats_have_no_loss_scale():
  for name in ('float32', 'bfloat16', 'bfloat16_operands'):
    raw = config_lib.default()
    raw.train.precision = name
    assert loss_scale.init(config_lib.parse(raw).train) is None
  assert loss_scale.factor(None, 100) == 1.0
  assert loss_scale.update(None, jnp.bool_(False), 3) == (None, False)
  assert loss_scale.metrics(None) == {}
  programs = test_step.fresh()
  state = jax.eval_shape(lambda: programs.states.init(8))
  shapes = jax.eval_shape(programs.train_step, state, test_step.draw(0))
  assert shapes[0].loss_scale is None and 'loss_scale' not in shapes[1]


def make(scale, changes=()):
  """Returns (programs, a new state that has this loss scale)."""
  programs, state = test_step.make((*HALF, *changes))
  scaled = jax.device_put(at(scale), state.loss_scale.scale.sharding)
  return programs, state.replace(loss_scale=scaled)


def run(scale, changes=(), count=2):
  programs, state = make(scale, changes)
  for n in range(count):
    state, values = programs.train_step(state, test_step.draw(n))
  return jax.device_get(state), jax.device_get(values)


@pytest.mark.float16
def test_gradients_are_unscaled_before_the_clip_and_the_norm():
  results = [run(scale) for scale in (2.0**8, 2.0**10)]
  # Scales round nothing but what is near 0 in float16.
  (low, one), (high, other) = results
  assert one['gradient_norm'] == pytest.approx(other['gradient_norm'], rel=1e-5)
  # Measured: 3e-7.
  assert test_step.largest_difference(low.params, high.params) < 2e-6
  _, exact = test_step.run(count=2)
  assert one['gradient_norm'] == pytest.approx(
    exact['gradient_norm'], rel=1e-2
  )  # 4e-3


@pytest.mark.float16
def test_an_overflow_changes_nothing_but_the_scale_and_is_no_failure():
  programs, state = make(2.0**30)
  before = jax.tree.map(np.array, jax.device_get(state))
  for count in (1, 2):
    state, values = programs.train_step(state, test_step.draw(0))
    assert not values['finite'] and values['skipped'] == 0
    assert np.isfinite(values['sums']['objective'])
    assert values['loss_scale'] == 2.0 ** (31 - count)
    after = jax.device_get(state)
    assert after.loss_scale == (2.0 ** (30 - count), 0)
    for name in ('params', 'opt_state'):
      pair = getattr(before, name), getattr(after, name)
      jax.tree.map(np.testing.assert_array_equal, *pair)


@pytest.mark.float16
def test_what_no_scale_can_fix_is_a_failure():
  programs, state = make(2.0)
  bad = test_step.draw(0)
  bad = bad._replace(weights_BxL=np.full_like(bad.weights_BxL, np.inf))
  for scale, skipped in ((1, 0), (1, 1), (1, 2)):
    state, values = programs.train_step(state, bad)
    assert (values['skipped'], state.loss_scale.scale) == (skipped, scale)


@pytest.mark.float16
def test_the_scale_doubles_while_steps_are_finite():
  state, values = run(4.0, count=5)
  assert state.loss_scale == (16.0, 1) and values['loss_scale'] == 16


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def train(tmp_path, name, hooks=(), **changes):
  """The progress and the rows of a small run."""
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.update(steps=30, checkpoint_every=30)
  raw.train.update(changes)
  raw.model.layers = 1
  raw.optimizer.learning_rate = 1e-2
  raw.evaluate.every = 0
  raw.data.update(boundaries=(32,), splits=(100, 0, 0))
  progress = loop.train(config_lib.parse(raw), str(tmp_path / name), hooks)
  return progress, metrics.read(tmp_path / name)


@pytest.mark.float16
def test_the_factors_of_kfac_are_those_of_the_unscaled_loss():
  low, high = (
    run(scale, (*ONE, ('optimizer.name', 'kfac')))[0]
    for scale in (2.0**8, 2.0**10)
  )
  for a, b in zip(
    *(jax.tree.leaves(state.opt_state) for state in (low, high)),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, 1e-3, 1e-3 * np.abs(a).max(initial=0))


@functools.cache
def last_loss(*changes):
  """The loss of the last of 40 steps, half of which are of each batch."""
  fast = ('optimizer.learning_rate', 0.01), ('schedule.name', 'constant')
  programs, state = test_step.make((*ONE, *fast, *changes))
  for n in range(40):
    state, values = programs.train_step(state, test_step.draw(n % 2))
  return float(values['sums']['loss'] / values['sums']['weight'])


@pytest.mark.parametrize(
  'changes',
  (
    (('train.precision', 'bfloat16'),),
    pytest.param(HALF[:1], marks=pytest.mark.float16),
    (('train.quantized', 'int8'),),
  ),
)
def test_all_formats_reach_the_loss_of_float32(changes):
  got, exact = last_loss(*changes), last_loss()
  assert exact < 4
  # Measured: 0.2 %.
  assert got == pytest.approx(exact, rel=0.1) and got != exact


@pytest.mark.float16
def test_a_run_that_overflows_at_the_start_recovers(tmp_path):
  def raise_scale(trainer):
    if trainer.step == 1:
      high = loss_scale.LossScale(np.float32(2.0**26), np.int32(0))
      high = jax.device_put(high, trainer.state.step.sharding)
      trainer.state = trainer.state.replace(loss_scale=high)

  progress, rows = train(
    tmp_path,
    'run',
    [raise_scale],
    precision='float16',
    max_skipped_steps=1,
    log_every=1,
  )
  rows = [row for row in rows if row['split'] == 'train'][1:]
  scales = [row['loss_scale'] for row in rows]
  assert scales[0] == 2.0**26 and scales == sorted(scales)[::-1]
  halvings = int(np.log2(scales[0] / scales[-1]))
  assert progress.skipped_steps == halvings > 2
  assert 'loss' not in rows[0] and scales[-1] >= 2.0**10  # measured: 2^13
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert losses[-1] < 0.8 * losses[0]
