"""Shampoo against its equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.training import optimizer
from tests.training.optimizers import following


def power(h, exponent):
  values, vectors = np.linalg.eigh(h)
  return (vectors * values**exponent) @ vectors.T


@pytest.mark.parametrize('grafting', ('adam', 'none'))
@pytest.mark.parametrize(
  ('b1', 'every', 'longest', 'forget'),
  ((0.8, 3, 1024, 1.0), (0.0, 1, 5, 0.7)),
)
def test_parameters_follow_the_published_equations(
  b1, every, longest, forget, grafting
):
  eps, b2 = 0.1, 0.9

  def reference(p, gradients, decay):
    sums = [eps * np.eye(n) for n in p.shape]
    roots, m, v = None, 0.0, 0.0
    for step, g in enumerate(gradients):
      for axis, n in enumerate(p.shape):
        rows = np.moveaxis(g, axis, 0).reshape(n, -1)
        sums[axis] = forget * sums[axis] + rows @ rows.T
        if n > longest:
          sums[axis] = np.diag(np.diag(sums[axis]))
      if step % every == 0:
        roots = [power(h, -1 / (2 * p.ndim)) for h in sums]
      u = roots[0] @ g
      if p.ndim == 2:
        u = u @ roots[1]
      v = b2 * v + (1 - b2) * g**2
      if grafting == 'adam':
        a = g / (np.sqrt(v / (1 - b2 ** (step + 1))) + eps)
        u *= np.sqrt(np.sum(a**2) / np.sum(u**2))
      m = u + b1 * m
      p = p - following.rate(step) * (m + decay * p)
    return p

  settings = following.config(
    'shampoo',
    b1=b1,
    b2=b2,
    eps=eps,
    grafting=grafting,
    roots_every=every,
    longest_side=longest,
    sum_decay=forget,
  )
  # Measured: 1e-6.
  following.compare(settings, reference, rtol=1e-5, atol=1e-6)


def test_tensors_of_three_axes_have_three_preconditioners():
  rng = np.random.default_rng(0)
  params, g = (rng.normal(size=(3, 4, 5)) for _ in range(2))
  settings = following.config(
    'shampoo', b1=0.0, eps=0.1, weight_decay=0.0, grafting='none'
  )
  transform = optimizer.make(settings.optimizer, lambda step: 1.0)
  params, gradient = ({'taps': np.float32(x)} for x in (params, g))
  updates, _ = jax.jit(
    lambda: transform.update(gradient, transform.init(params), params)
  )()
  for axis, n in enumerate(g.shape):
    rows = np.moveaxis(np.array(gradient['taps'], float), axis, 0)
    rows = rows.reshape(n, -1)
    root = power(0.1 * np.eye(n) + rows @ rows.T, -1 / 6)
    g = np.moveaxis(np.tensordot(root, g, (1, axis)), 0, axis)
  np.testing.assert_allclose(updates['taps'], -g, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_one_direction_leaves_no_infinity():
  """Its other eigenvalues are below what float32 can tell from 0."""
  settings = following.config('shampoo', eps=1e-30, grafting='none')
  transform = optimizer.make(settings.optimizer, lambda step: 1.0)
  params = {'kernel': jnp.zeros((8, 6))}
  gradient = {'kernel': jnp.ones((8, 6))}
  updates, state = jax.jit(
    lambda: transform.update(gradient, transform.init(params), params)
  )()
  assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((updates, state)))
  np.testing.assert_allclose(updates['kernel'], -1 / np.sqrt(48), rtol=1e-2)


def test_grafted_steps_are_as_long_as_adams():
  rng = np.random.default_rng(0)
  gradient = {'kernel': np.float32(rng.normal(size=(8, 6)) * 1e-3)}
  lengths = []
  for grafting in ('adam', 'none'):
    settings = following.config(
      'shampoo', b1=0.0, weight_decay=0.0, grafting=grafting
    )
    transform = optimizer.make(settings.optimizer, lambda step: 1.0)

    @jax.jit
    def first(x, update=transform.update, init=transform.init):
      return update(x, init(x), x)[0]

    lengths.append(np.linalg.norm(first(gradient)['kernel']))
  # The first step of Adam is of ones.
  np.testing.assert_allclose(lengths[0], np.sqrt(48), rtol=1e-3)
  assert abs(lengths[1] - lengths[0]) > 1


def test_a_gradient_of_zeros_leaves_a_parameter_as_it_is():
  settings = following.config('shampoo', weight_decay=0.0)
  transform = optimizer.make(settings.optimizer, lambda step: 1.0)
  zeros = {'kernel': jnp.zeros((8, 6))}
  updates, _ = jax.jit(
    lambda: transform.update(zeros, transform.init(zeros), zeros)
  )()
  np.testing.assert_array_equal(updates['kernel'], zeros['kernel'])
