"""Compares an optimizer with a float64 reference of one matrix."""

import functools

import jax
import numpy as np
import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer

SHAPES = {
  'blocks': {'kernel': (2, 6, 5), 'bias': (2, 5)},
  'embedding': {'embedding': (9, 5)},
  'head': {'kernel': (5, 9)},
}
STACKED = frozenset(('blocks/kernel', 'blocks/bias'))
STEPS = 7


def config(name, **changes):
  raw = config_lib.default()
  raw.schedule.update(name='constant', warmup_steps=0)
  raw.optimizer.update(name=name, clip_norm=0.0, weight_decay=0.1)
  raw.optimizer.update(changes)
  return config_lib.parse(raw)


def rate(step):
  return 0.01 + 0.005 * step


def draw(rng):
  return jax.tree.map(
    lambda shape: rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 0, shape),
    SHAPES,
    is_leaf=lambda x: isinstance(x, tuple),
  )


def follow(transform, params, gradients, more=None):
  """Returns float32 parameters after updates by each of the gradients.

  `more` are other arguments of the updates, {name: their values}.
  """

  def step(now, inputs):
    (params, state), (gradient, own) = now, inputs
    updates, state = transform.update(gradient, state, params, **own)
    return (optax.apply_updates(params, updates), state), None

  @jax.jit
  def run(params, *inputs):
    begun = params, transform.init(params)
    return jax.lax.scan(step, begun, inputs)[0][0]

  params, gradients, more = jax.tree.map(
    np.float32, (params, gradients, more or {})
  )
  stack = functools.partial(jax.tree.map, lambda *each: np.stack(each))
  return run(params, stack(*gradients), {k: stack(*x) for k, x in more.items()})


def compare(settings, reference, rtol=1e-5, atol=1e-7):
  """Checks that parameters equal the reference's after some steps.

  Args:
    settings: Config.
    reference: (parameter, gradients, weight decay) -> the parameter after
      gradients of steps 0, 1, ..., of one layer in float64.
    rtol: relative tolerance.
    atol: absolute tolerance.
  """
  rng = np.random.default_rng(0)
  params, *gradients = (draw(rng) for _ in range(STEPS + 1))
  transform = optimizer.make(settings.optimizer, rate, STACKED)
  ours = jax.device_get(follow(transform, params, gradients))

  def check(path, actual, param, *gradients):
    name = optimizer.parameter_name(path)
    decay = settings.optimizer.weight_decay * name.endswith('kernel')
    for layer in range(len(param)) if name in STACKED else [...]:
      expected = reference(param[layer], [g[layer] for g in gradients], decay)
      np.testing.assert_allclose(actual[layer], expected, rtol, atol, name)

  jax.tree.map_with_path(check, ours, params, *gradients)
