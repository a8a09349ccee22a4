"""K-FAC against its equations in float64, and compared with SGD."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnn_jax.models import dense
from rnn_jax.training import frozen as frozen_lib
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import kfac
from tests.training.optimizers import following

LAYERS, D, F = 2, 6, 5
NAMES = ('blocks/kernel', 'head/kernel')


def draw_factors(rng, like, kernels):
  """Sums of outer products, of some directions more than of others."""

  def draw(path, pair):
    stack = at(kernels, optimizer.parameter_name(path)).shape[:-2]

    def one(x):
      n = x.shape[-1]
      rows = rng.normal(size=(*stack, 3 * n, n)) * np.logspace(0, -1, n)
      product = rows.swapaxes(-1, -2) @ rows
      diagonal = np.diagonal(product, axis1=-2, axis2=-1)
      return product if x.ndim == len(stack) + 2 else diagonal

    return dense.Factors(*map(one, pair))

  return jax.tree.map_with_path(
    draw, like, is_leaf=lambda x: isinstance(x, dense.Factors)
  )


def whole(factor, n):
  return factor if factor.shape == (n, n) else np.diag(factor)


def kernel(p, gradients, factors, options):
  """Returns a kernel after these steps, in float64."""
  m, means, inverses = 0.0, [0.0, 0.0], None
  for step, (g, pair) in enumerate(zip(gradients, factors, strict=True)):
    kept = min(1 - 1 / (step + 1), options.b2)
    means = [
      kept * old + (1 - kept) * whole(new, n)
      for old, new, n in zip(means, pair, g.shape, strict=True)
    ]
    if step % options.roots_every == 0:
      inverses = damped(means, options.damping)
    m = options.b1 * m + (1 - options.b1) * g
    u = inverses[0] @ m @ inverses[1]
    u = 0.5 * u / np.sqrt(np.mean(u**2))
    p = p - following.rate(step) * (u + options.weight_decay * p)
  return p


def other(p, gradients, options):
  """Returns a parameter after steps of Adam, in float64."""
  m = v = 0.0
  for step, g in enumerate(gradients):
    m = options.b1 * m + (1 - options.b1) * g
    v = options.b2 * v + (1 - options.b2) * g**2
    root = np.sqrt(v / (1 - options.b2 ** (step + 1))) + options.eps
    u = m / (1 - options.b1 ** (step + 1)) / root
    p = p - following.rate(step) * u
  return p


@pytest.mark.parametrize(
  ('every', 'longest', 'b1'), ((3, 1024, 0.8), (1, 5, 0.0))
)
def test_parameters_follow_the_equations(every, longest, b1):
  settings = following.config(
    'kfac', b1=b1, b2=0.7, roots_every=every, longest_side=longest, damping=0.01
  )
  options = settings.optimizer
  rng = np.random.default_rng(0)
  params, *gradients = (following.draw(rng) for _ in range(following.STEPS + 1))
  like = dense.blank(params, NAMES, longest)
  factors = [draw_factors(rng, like, params) for _ in gradients]
  transform = optimizer.make(
    settings.optimizer, following.rate, following.STACKED, like
  )
  more = {'factors': factors}
  actual = following.follow(transform, params, gradients, more)
  for path, param in jax.tree.leaves_with_path(params):
    name = optimizer.parameter_name(path)
    for n in range(LAYERS) if name in following.STACKED else [...]:
      own = [at(tree, name)[n] for tree in gradients]
      if name in NAMES:
        pairs = [[x[n] for x in at(tree, name)] for tree in factors]
        expected = kernel(param[n], own, pairs, options)
      else:
        expected = other(param[n], own, options)
      # Measured: 2e-6.
      np.testing.assert_allclose(
        at(actual, name)[n], expected, 1e-5, 1e-6, f'{name} {n}'
      )


def damped(means, damping):
  """The inverses as published, of the factors A and G."""
  a, g = (np.trace(x) / len(x) for x in means)
  pi, added = np.sqrt(a / g), np.sqrt(damping * a * g)
  return [
    np.linalg.inv(x + more * np.eye(len(x)))
    for x, more in zip(means, (pi * added, added / pi), strict=True)
  ]


def at(tree, name):
  for key in name.split('/'):
    tree = tree[key]
  return tree


def test_frozen_kernels_and_those_without_factors_are_left_to_others():
  settings = following.config('kfac', frozen=('head/.*',), clip_norm=1.0)
  params = following.draw(np.random.default_rng(0))
  factors = dense.blank(params, NAMES[:1], 1024)
  frozen = frozen_lib.mask(settings.optimizer.frozen, settings.adapters, params)
  transform = optimizer.make(
    settings.optimizer, following.rate, following.STACKED, factors, frozen
  )
  params = jax.tree.map(np.float32, params)

  @jax.jit
  def step(params, factors):
    begun = transform.init(params)
    return transform.update(params, begun, params, factors=factors)

  updates, state = step(params, factors)
  assert not np.any(updates['head']['kernel'])
  # Without any curvature yet: the gradient itself, of the length of a step.
  own = params['blocks']['kernel']
  size = np.sqrt(np.mean(own**2, (1, 2), keepdims=True))
  expected = -following.rate(0) * (0.5 * own / size + 0.1 * own)
  np.testing.assert_allclose(updates['blocks']['kernel'], expected, 1e-5)
  kept = [
    x
    for x in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kfac.State))
    if isinstance(x, kfac.State)
  ]
  assert len(kept) == 1
  assert kept[0].factors['blocks']['kernel'].inputs.shape == (LAYERS, D, D)


STEPS, ROWS, D_IN, CLASSES = 40, 256, 6, 3
RATES = {'kfac': (3, 10, 30, 100), 'sgd': (0.3, 1, 3, 10, 30, 100)}


def problem():
  """Inputs whose directions have sizes from 1 to .01, and their classes."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(ROWS, D_IN))
  rotation = np.linalg.qr(rng.normal(size=(D_IN, D_IN)))[0]
  noise = 0.5 * rng.normal(size=(ROWS, CLASSES))
  labels = np.argmax(x @ rng.normal(size=(D_IN, CLASSES)) + noise, 1)
  return jnp.float32(x * np.logspace(0, -2, D_IN) @ rotation), jnp.array(labels)


def last_losses(name):
  """Returns the loss after STEPS steps on the same rows, for each rate."""
  x, labels = problem()
  changes = {'damping': 1e-4, 'roots_every': 1} if name == 'kfac' else {}
  settings = following.config(name, weight_decay=0.0, **changes)
  net = nn.Sequential([nn.Dense(CLASSES, use_bias=False)])
  params = net.init(jax.random.key(0), x)['params']
  names = dense.kernels(lambda key: net.init(key, x)['params'])
  blank = dense.blank(params, names, 100) if name == 'kfac' else {}

  def loss(params, blank):
    y = net.apply({'params': dense.joined(params, blank)}, x)
    return -jnp.sum(jax.nn.log_softmax(y)[jnp.arange(ROWS), labels])

  def run(peak):
    transform = optimizer.make(
      settings.optimizer,
      lambda step: peak * (1 - step / STEPS),
      frozenset(),
      blank,
    )

    def step(now, _):
      params, state = now
      with dense.tagging():
        total, (g, sums) = jax.value_and_grad(loss, (0, 1))(params, blank)
      factors = dense.averaged(sums, ROWS, 1.0)
      g = jax.tree.map(lambda x: x / ROWS, g)
      updates, state = transform.update(g, state, params, factors=factors)
      return (optax.apply_updates(params, updates), state), total / ROWS

    begin = params, transform.init(params)
    _, losses = jax.lax.scan(step, begin, length=STEPS)
    return losses[-1]

  rates = jnp.array(RATES[name], jnp.float32)
  return np.array(jax.jit(jax.vmap(run))(rates))


def test_a_badly_scaled_problem_is_learned_faster_than_by_sgd():
  """Each at its best rate."""
  ours, others = last_losses('kfac'), last_losses('sgd')
  assert np.nanmin(ours) < 0.5 * np.nanmin(others), (ours, others)
