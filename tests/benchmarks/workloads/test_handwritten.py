"""Forms of one operation compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.workloads import handwritten

RATE = 0.25


def test_the_backward_pass_by_hand_is_that_of_its_equations():
  x, dy = (
    jax.random.normal(key, (2, 5, 8))
    for key in jax.random.split(jax.random.key(0))
  )
  key = jax.random.key(1)

  def plain(x):
    inverse = 1 / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)
    kept = jax.random.bernoulli(key, 1 - RATE, x.shape)
    return jnp.where(kept, jax.nn.gelu(x * inverse) / (1 - RATE), 0)

  results = []
  for run in (plain, lambda x: handwritten.by_hand(x, key, RATE)):
    y, back = jax.vjp(jax.jit(run), x)
    results.append((y, *back(dy)))
  for a, b in zip(*results, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('form', handwritten.FORMS)
def test_each_form_is_measured(form):
  row = handwritten.norm_dropout(1, [2, 3, 8], form, RATE)
  assert row['median'] > 0


def test_experts_in_blocks_are_those_of_ragged_dot():
  x, up, down, gate = handwritten._draw([9, 4], [3, 4, 6], [3, 6, 4], [9, 2])
  params = {'up': up, 'down': down}
  chosen = (jnp.arange(9)[:, None] + jnp.arange(2)[None]) % 3

  def gradients(run):
    def total(x, params, gate):
      return jnp.sum(jnp.sin(run(x, params, gate, chosen)))

    return jax.jit(jax.value_and_grad(total, (0, 1, 2)))(x, params, gate)

  forms = handwritten.by_routed, handwritten.by_ragged_dot
  for a, b in zip(*map(jax.tree.leaves, map(gradients, forms)), strict=True):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize('every', (1, 3))
def test_losses_are_the_same(every):
  x, kernel, bias = handwritten._draw([2, 3, 4], [4, 5], [5])
  targets = jnp.arange(6).reshape(2, 3) % 5
  weights = (targets % every == 0).astype(jnp.float32)
  want, *others = (
    jax.jit(jax.value_and_grad(form, (0, 1, 2)))(
      x, kernel, bias, targets, weights
    )
    for form in handwritten.LOSSES.values()
  )
  for got in others:
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
