"""What all optimizers have in common: clipping, decay and patterns."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import frozen as frozen_lib
from rnn_jax.training import optimizer


def config(**changes):
  raw = config_lib.default()
  raw.train.steps = 20
  raw.schedule.warmup_steps = 5
  raw.optimizer.update(changes)
  return config_lib.parse(raw)


@pytest.mark.parametrize('name', ('adamw', 'adafactor'))
def test_updates_are_proportional_to_the_rate(name):
  """A schedule scales them afterwards."""
  rng = np.random.default_rng(0)
  params = {'kernel': np.float32(rng.normal(size=(130, 140)))}
  gradient = {'kernel': np.float32(rng.normal(size=(130, 140)))}
  scaled = []
  for rate in (1.0, 0.25):
    settings = config(name=name, weight_decay=0.5)
    transform = optimizer.make(settings.optimizer, lambda step, rate=rate: rate)
    update = jax.jit(transform.update)
    updates, _ = update(gradient, jax.jit(transform.init)(params), params)
    scaled.append(np.float64(updates['kernel']) / rate)
  np.testing.assert_allclose(*scaled, rtol=1e-5)


def test_gradients_are_clipped_by_their_global_norm():
  settings = config(clip_norm=1.0)
  transform = optimizer.make(settings.optimizer, lambda step: 1.0)
  params = {'a': np.zeros(2, np.float32), 'b': np.zeros(2, np.float32)}
  gradient = {'a': np.float32([30, 0]), 'b': np.float32([0, 40])}
  _, state = jax.jit(transform.update)(
    gradient, jax.jit(transform.init)(params), params
  )
  (mu,) = [
    s.mu
    for s in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, 'mu'))
    if hasattr(s, 'mu')
  ]
  np.testing.assert_allclose(mu['a'], [0.06, 0.0], rtol=1e-6)
  np.testing.assert_allclose(mu['b'], [0.0, 0.08], rtol=1e-6)


PARAMS = {
  'blocks': {'cell': {'kernel': (2, 3, 4), 'bias': (2, 4), 'taps': (2, 3)}},
  'norm': {'scale': (3,)},
  'embedding': {'embedding': (5, 3)},
}


def draw(seed):
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda shape: np.float32(rng.normal(size=shape)),
    PARAMS,
    is_leaf=lambda x: isinstance(x, tuple),
  )


def moves(params, **changes):
  """What two steps of plain SGD with a rate of 1 add to the parameters."""
  settings = config(name='sgd', b1=0.0, clip_norm=0.0, **changes)
  transform = optimizer.make(settings.optimizer, lambda step: 1.0)
  state, new = jax.jit(transform.init)(params), params
  update = jax.jit(transform.update)
  for n in range(2):
    updates, state = update(draw(n + 1), state, new)
    new = jax.tree.map(np.add, new, updates)
  return jax.tree.map(np.subtract, new, params)


def by_name(tree, function):
  return jax.tree.map_with_path(
    lambda path, x: function(optimizer.parameter_name(path), x), tree
  )


def test_kernels_decay_and_what_patterns_name():
  params, zeros = draw(0), jax.tree.map(np.zeros_like, draw(0))
  named = (('.*/kernel', 0.0), ('.*/taps', 0.25), ('blocks/.*', 0.125))
  expected = {
    (): {'blocks/cell/kernel': 0.5},
    named: {'blocks/cell/taps': 0.25, 'blocks/cell/bias': 0.125},
  }
  for patterns, rates in expected.items():
    settings = config(
      name='sgd', b1=0.0, weight_decay=0.5, weight_decays=patterns
    )
    transform = optimizer.make(settings.optimizer, lambda step: 1.0)
    updates, _ = jax.jit(transform.update)(
      zeros, transform.init(params), params
    )
    for path, x in jax.tree.leaves_with_path(updates):
      name = optimizer.parameter_name(path)
      param = params[path[0].key]
      for key in path[1:]:
        param = param[key.key]
      np.testing.assert_allclose(x, -rates.get(name, 0.0) * param, 1e-6)


def test_the_first_pattern_that_matches_multiplies_the_rate():
  params = draw(0)
  plain = moves(params, weight_decay=0.0)
  actual = moves(
    params,
    weight_decay=0.0,
    multipliers=(('embedding/.*', 0.5), ('.*embedding', 4.0), ('norm.*', 2.0)),
  )
  times = {'embedding/embedding': 0.5, 'norm/scale': 2.0}
  expected = by_name(plain, lambda name, x: times.get(name, 1.0) * x)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), actual, expected
  )


@pytest.mark.parametrize('name', ('adamw', 'adafactor', 'schedule_free'))
def test_a_multiplier_is_another_rate(name):
  params, results = draw(0), []
  changes = {'multipliers': (('embedding/.*', 0.5),)}
  for rate, more in ((1e-2, changes), (5e-3, {})):
    settings = constant(name, **more)
    transform = optimizer.make(settings.optimizer, lambda step, rate=rate: rate)
    state, new = jax.jit(transform.init)(params), params
    update = jax.jit(transform.update)
    for n in range(3):
      updates, state = update(draw(n + 1), state, new)
      new = jax.tree.map(np.add, new, updates)
    results.append(new['embedding']['embedding'])
  np.testing.assert_allclose(*results, rtol=1e-6)


def constant(name, **changes):
  """A config whose schedule suits every optimizer."""
  raw = config_lib.default()
  raw.schedule.update(name='constant', warmup_steps=0)
  raw.optimizer.update(name=name, clip_norm=0.0, **changes)
  return config_lib.parse(raw)


def test_frozen_parameters_have_no_state_and_no_part_in_the_clip():
  settings = config(frozen=('blocks/.*', '.*/scale'))
  params = draw(0)
  frozen = frozen_lib.mask(settings.optimizer.frozen, settings.adapters, params)
  transform = optimizer.make(
    settings.optimizer, lambda step: 1.0, frozen=frozen
  )
  state = transform.init(params)
  sizes = {x.shape for x in jax.tree.leaves(state)}
  assert sizes == {(), (5, 3)}
  gradient = jax.tree.map(lambda x: 1e6 * np.ones_like(x), params)
  gradient['embedding']['embedding'] = draw(1)['embedding']['embedding'] / 100
  updates, state = jax.jit(transform.update)(gradient, state, params)
  for name in ('blocks', 'norm'):
    assert not any(x.any() for x in jax.tree.leaves(updates[name]))
  (mu,) = (
    x
    for path, x in jax.tree.leaves_with_path(state)
    if 'mu' in jax.tree_util.keystr(path)
  )
  expected = 0.1 * np.array(gradient['embedding']['embedding'])
  np.testing.assert_allclose(mu, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  (
    ('multipliers', (('embed', 0.5),), "multipliers: 'embed' matches no"),
    ('weight_decays', (('.*', 0.5), ('x.*', 1.0)), "'x.*' matches no"),
    ('frozen', ('norm/.*', 'heads'), "frozen: 'heads' matches no parameter"),
    ('frozen', ('.*',), 'nothing is left to train'),
  ),
)
def test_a_pattern_without_a_parameter_is_refused_with_their_names(
  key, value, message
):
  with pytest.raises(errors.InputError) as caught:
    optimizer.check_names(config(**{key: value}).optimizer, draw(0))
  whole = str(caught.value)
  assert message in whole
  assert 'blocks/cell/taps' in whole and 'norm/scale' in whole
