"""What any cell gets from the base class, seen on the smallest cell."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from rnn_jax.cells import base
from tests.support import draws

B, L, D = 2, 11, 3
STARTS = np.zeros((B, L), np.int32)
STARTS[1, 4] = 1


@dataclasses.dataclass(frozen=True)
class Config:
  rate: float = 0.5


class Average(base.Cell):
  """S_t = rate S_{t-1} + w x_t, and y_t = S_t^2."""

  def setup(self):
    self.weight = self.param('weight', nn.initializers.ones, (1, self.width))

  def init_state(self, B):
    return jnp.zeros((B, self.width))

  def project(self, x_BxLxD):
    return x_BxLxD * self.weight[None]

  def step(self, state, u):
    state = self.config.rate * state + u
    return state, state**2


def build(**plan):
  return Average(Config(), D, base.Plan(**plan))


X = np.asarray(draws.normal(B, L, D))
PARAMS = {'params': {'weight': np.float32([[1.0, -0.5, 2.0]])}}


def by_hand(S, starts):
  """float64: the final state and all y."""
  S, outputs = np.float64(S), []
  for t in range(L):
    S = np.where(starts[:, t, None], 0.0, S)
    S = 0.5 * S + X[:, t] * PARAMS['params']['weight']
    outputs.append(S**2)
  return S, np.stack(outputs, 1)


@functools.cache
def both_ways(every):
  """The state and y of a row with and without resets, and the gradients."""
  state, cell = np.ones((B, D), np.float32), build(remat_every=every)

  @jax.jit
  def run(*inputs):
    out, back = jax.vjp(lambda *x: cell.apply(*x, STARTS), *inputs)
    slopes = back(jax.tree.map(jnp.cos, out))
    return out, cell.apply(*inputs), slopes

  return run(PARAMS, state, X)


@pytest.mark.parametrize('every', (0, 1, 4, 11, 20))
def test_four_methods_make_a_cell_that_scans_resets_and_remats(every):
  state = np.ones((B, D), np.float32)
  got = both_ways(every)
  for out, starts in zip(got, (STARTS, 0 * STARTS), strict=False):
    for a, b in zip(out, by_hand(state, starts), strict=True):
      np.testing.assert_allclose(a, b, rtol=3e-6)  # measured: 1.1e-6


@pytest.mark.parametrize('every', (1, 4, 20))
def test_remat_does_not_change_the_gradients(every):
  for a, b in zip(
    *(jax.tree.leaves(both_ways(n)[2]) for n in (every, 0)), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_remat_stores_one_state_per_segment():
  inputs = PARAMS, np.ones((B, D), np.float32), X[:, :8]

  def kept(every):
    run = build(remat_every=every)
    _, back = jax.vjp(lambda *x: run.apply(*x)[1], *inputs)
    shapes = [leaf.shape for leaf in jax.tree.leaves(back)]
    return max(s[0] for s in shapes if s[1:] == (B, D))

  assert (kept(0), kept(2), kept(4)) == (8, 4, 2)


def test_one_step_of_input_runs_no_loop():
  inputs = PARAMS, np.ones((B, D), np.float32), X[:, :1], STARTS[:, :1]
  jaxpr = jax.make_jaxpr(build().apply)(*inputs)
  assert 'scan' not in {e.primitive.name for e in jaxpr.eqns}
