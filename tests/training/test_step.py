"""A train step against its definition: mean gradients, AdamW, skipping."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import step
from rnn_jax.training import train_state
from rnn_jax.training import update_norms
from tests.support import tiny
from tests.support import virtual


def fresh(changes=()):
  """Programs that nothing has traced yet."""
  raw = tiny.raw_config('unused')
  raw.train.precision = 'float32'
  with raw.unlocked():
    for key, value in changes:
      section, name = key.split('.')
      raw[section][name] = value
  return programs_lib.from_config(config_lib.parse(raw), tokenizer.Bytes())


_kept = functools.cache(fresh)


def make(changes=()):
  """Returns (programs, a new state); equal changes share their programs."""
  programs = _kept(tuple(changes))
  return programs, programs.states.init(8)


def draw(seed, rows=8, length=12):
  rng = np.random.default_rng(seed)
  tokens = rng.integers(0, 256, (rows, length + 1)).astype(np.int32)
  lengths = rng.integers(1, length + 1, rows)
  weights = (np.arange(length) < lengths[:, None]).astype(np.float32)
  starts = np.zeros((rows, length), np.int32)
  starts[:, 0] = 1
  return batch_lib.Batch(tokens[:, :-1], tokens[:, 1:], weights, starts)


def run(changes=(), count=3):
  programs, state = make(changes)
  for n in range(count):
    state, values = programs.train_step(state, draw(n))
  return jax.device_get(state), jax.device_get(values)


# Without and with a carried state.
LAYOUTS = (
  (),
  (('data.layout', 'stream'), ('data.carry_state', True)),
)


def largest_difference(a, b):
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return max(float(np.max(np.abs(x - y))) for x, y in pairs)


class Line:
  """A task whose model is a line: the sum of w (a x + b - y)^2."""

  def init_state(self, rows):
    return jnp.zeros(rows)

  def loss(self, params, carry, batch, key):
    del key
    a, b = params['line']['a'], params['line']['b']
    error = a * batch.tokens_BxL + b - batch.targets_BxL
    loss = jnp.sum(batch.weights_BxL * error**2)
    sums = {'objective': loss, 'weight': jnp.sum(batch.weights_BxL)}
    return loss, (sums, carry + 1)


def mean_gradient(carries):
  """What is left of training/gradients.py on one device."""
  loss_fn = step.make_loss_fn(Line(), carries)

  def mean(state, batch):
    (_, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(
      state.params, state, batch, state.step_key()
    )
    weight = aux.sums['weight']
    return aux, jax.tree.map(lambda g: g / weight, grads)

  return mean


@pytest.mark.parametrize('carries', (False, True))
def test_a_step_is_the_rate_times_the_clipped_mean_gradient(carries):
  rng = np.random.default_rng(0)
  x, y, w = rng.uniform(0.5, 1, (3, 4, 5)).astype(np.float32)
  batch = batch_lib.Batch(x, y, w, np.zeros((4, 5), np.int32))
  rate, clip, scale = 0.1, 0.25, 0.5
  tx = optax.chain(optax.clip_by_global_norm(clip), optax.sgd(rate))
  params = {'line': {'a': jnp.float32(1.5), 'b': jnp.float32(-0.5)}}
  state = train_state.TrainState(
    params,
    tx.init(params),
    carry=jnp.zeros(4) if carries else None,
    step=jnp.int32(3),
    skipped=jnp.int32(2),
    rate_scale=jnp.float32(scale),
    key=jax.random.key_data(jax.random.key(0)),
  )
  parts = step.Parts(
    mean_gradient(carries),
    optax.with_extra_args_support(tx),
    lambda step: rate,
    lambda state, updates: optax.apply_updates(state.params, updates),
    update_norms.measure,
  )
  new, metrics = jax.jit(step.make_train_step(parts))(state, batch)
  error = np.float64(1.5 * x - 0.5 - y)
  grads = {
    'a': (w * 2 * error * x).sum() / w.sum(),
    'b': (w * 2 * error).sum() / w.sum(),
  }
  norm = np.hypot(*grads.values())
  assert norm > clip  # else nothing is clipped
  for name, g in grads.items():
    want = params['line'][name] - scale * rate * g * clip / norm
    np.testing.assert_allclose(new.params['line'][name], want, 1e-6)
  np.testing.assert_allclose(metrics['gradient_norm'], norm, 1e-6)
  np.testing.assert_allclose(metrics['learning_rate'], scale * rate, 1e-6)
  row = update_norms.describe(**metrics['squares'])
  moved = scale * rate * clip  # the clipped gradient has this norm
  for key in ('update_norm', 'update_norm/line'):
    np.testing.assert_allclose(row[key], moved, 1e-6)
  ratio = moved / np.hypot(1.5, 0.5)
  np.testing.assert_allclose(row['update_ratio/line'], ratio, 1e-6)
  np.testing.assert_allclose(
    metrics['sums']['objective'], (w * error**2).sum(), 1e-6
  )
  assert (new.step, new.skipped, metrics['finite']) == (4, 0, True)
  if carries:
    np.testing.assert_array_equal(new.carry, np.ones(4))
  else:
    assert new.carry is None


def test_accumulated_micro_batches_equal_the_large_batch():
  layout = LAYOUTS[True]
  whole, sums = run(layout)
  parts, part_sums = run((*layout, ('train.accumulate', 4)))
  assert largest_difference(whole.params, parts.params) < 2e-6
  np.testing.assert_allclose(
    sums['sums']['loss'], part_sums['sums']['loss'], rtol=1e-6
  )
  assert largest_difference(whole.carry, parts.carry) < 2e-6


def test_a_carried_state_reaches_the_next_batch():
  programs, state = make(LAYOUTS[True])
  batch = draw(0)
  batch = batch._replace(starts_BxL=np.zeros_like(batch.starts_BxL))
  state, first = programs.train_step(state, batch)
  assert float(abs(jax.tree.leaves(state.carry)[0]).max()) > 0
  fresh = batch._replace(starts_BxL=draw(0).starts_BxL)
  params = jax.device_get(state.params)
  carry = jax.tree.map(np.array, jax.device_get(state.carry))
  losses = [
    float(programs.evaluate_step(params, jax.device_put(carry), b)[1]['loss'])
    for b in (batch, fresh)
  ]
  assert losses[0] != losses[1]


def test_training_begins_with_the_parameters_that_it_is_given():
  programs, state = make()
  given = jax.tree.map(lambda x: x + 1.0, jax.device_get(state.params))
  state = programs.states.init_from(state, jax.device_put(given))
  state, _ = programs.train_step(state, draw(0))
  assert largest_difference(jax.device_get(state.params), given) < 0.1


def test_a_non_finite_step_changes_nothing_and_is_counted():
  programs, state = make()
  before = jax.tree.map(np.array, jax.device_get(state))
  bad = draw(0)
  bad = bad._replace(weights_BxL=np.full_like(bad.weights_BxL, np.inf))
  for count in (1, 2):
    state, values = programs.train_step(state, bad)
    assert int(values['skipped']) == count
  after = jax.device_get(state)
  assert largest_difference(before.params, after.params) == 0
  assert largest_difference(before.opt_state, after.opt_state) == 0
  state, values = programs.train_step(state, draw(0))
  assert int(values['skipped']) == 0
  assert largest_difference(before.params, jax.device_get(state.params))


def test_parameters_and_other_random_numbers_have_seeds_of_their_own():
  def drawn(**seeds):
    _, state = make([(f'train.{key}', value) for key, value in seeds.items()])
    params = jax.tree.leaves(jax.device_get(state.params))
    weights = np.concatenate([x.ravel() for x in params])
    return weights.tobytes(), np.asarray(state.key).tobytes()

  same, other = drawn(), drawn(seed=1)
  assert same[0] != other[0] and same[1] != other[1]
  assert drawn(order_seed=1) == same
  assert drawn(weights_seed=1) == (other[0], same[1])
  assert drawn(seed=1, weights_seed=0) == (same[0], other[1])


def test_an_evaluation_lowers_the_rate_of_the_same_program():
  changes = ('schedule.name', 'plateau'), ('schedule.patience', 3)
  programs = fresh((*changes, ('optimizer.weight_decay', 5.0)))
  state = programs.states.init(8)
  rates, moves = [], []
  for evaluations in (0, 2, 3, 6, 6, 6, 6):
    state = programs.states.rescale(state, evaluations)
    state, values = programs.train_step(state, draw(0))
    rates.append(float(values['learning_rate']))
  np.testing.assert_allclose(
    rates, [5e-4, 1e-3, 1e-3, 5e-4, 2.5e-4, 1.25e-4, 1e-4], rtol=1e-6
  )
  for evaluations in (0, 3):
    state = programs.states.init(8)
    before = jax.tree.map(np.array, jax.device_get(state.params))
    state = state.replace(step=state.step + 3)  # after the warm-up
    state = programs.states.rescale(state, evaluations)
    params = programs.train_step(state, draw(0))[0].params
    moves.append(jax.tree.map(np.subtract, params, before))
  halved = jax.tree.map(lambda x: 0.5 * x, moves[0])
  # Measured: 2.4e-7, the precision of the parameters.
  assert largest_difference(halved, moves[1]) < 6e-7
  assert largest_difference(halved, moves[0]) > 2e-4
  assert programs.traces == 1 and programs._train_step._cache_size() == 1


def test_steps_compiled_ahead_are_those_that_run():
  programs = fresh([('model.layers', 1)])
  state, carry = programs.states.init(8), programs.states.init_carry(8)
  lengths = 8, 12
  for length in lengths:
    programs.compile_train(8, length)
  programs.trace_evaluate(8, 12).lower().compile()
  batches = [
    mesh_lib.put(draw(0, length=length), programs.batch_sharding)
    for length in (*lengths, 8, 12)
  ]
  compiled = []

  def listen(event, _, **__):
    compiled.append(event)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    for batch in batches:
      state, _ = programs.train_step(state, batch)
    programs.evaluate_step(state.params, carry, batches[-1])
    compilations = [event for event in compiled if 'backend_compile' in event]
    # One of each shape of training batches, one of evaluation.
    assert programs.traces == 2 + 1 and not compilations
    jax.block_until_ready(jax.jit(lambda x: x + 41)(batch.weights_BxL))
    assert [event for event in compiled if 'backend_compile' in event]
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def test_dropout_differs_at_each_step_and_repeats_with_the_seed():
  programs, state = make(
    (
      ('model.dropout', 0.5),
      ('optimizer.learning_rate', 0.0),
      ('schedule.final_learning_rate', 0.0),
    )
  )
  losses = []
  for _ in range(2):
    state, values = programs.train_step(state, draw(0))
    losses.append(float(values['sums']['loss']))
  assert losses[0] != losses[1]
  again = programs.states.init(8)
  values = programs.train_step(again, draw(0))[1]
  assert float(values['sums']['loss']) == losses[0]


def all_layouts():
  """Parameters of a few steps in each of LAYOUTS, on all devices."""
  return [run(layout)[0].params for layout in LAYOUTS]


def test_eight_devices_give_the_parameters_of_one():
  metrics = virtual.call('tests.training.test_step', 'all_layouts')
  for layout, sharded in zip(LAYOUTS, metrics, strict=True):
    # Measured: 6e-8; sums of gradients are added in another order.
    assert largest_difference(run(layout)[0].params, sharded) < 2e-6
