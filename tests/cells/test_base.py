"""What any cell gets from the base class, seen on the smallest cell."""

import dataclasses

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


@pytest.mark.parametrize('every', (0, 1, 4, 11, 20))
def test_four_methods_make_a_cell_that_scans_resets_and_remats(every):
  state = np.ones((B, D), np.float32)
  cell = build(remat_every=every)
  got = jax.jit(cell.apply)(PARAMS, state, X, STARTS)
  for a, b in zip(got, by_hand(state, STARTS), strict=True):
    np.testing.assert_allclose(a, b, rtol=3e-6)  # measured: 1.1e-6
  got = jax.jit(cell.apply)(PARAMS, state, X)
  np.testing.assert_allclose(
    got[1], by_hand(state, 0 * STARTS)[1], rtol=3e-6
  )  # measured: 1.1e-6


def slopes(cell):
  def loss(variables, state, x):
    state, y = cell.apply(variables, state, x, STARTS)
    return jnp.sin(state).sum() + jnp.cos(y).sum()

  return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))


@pytest.mark.parametrize('every', (1, 4, 5))
def test_remat_does_not_change_the_gradients(every):
  inputs = PARAMS, np.ones((B, D), np.float32), X
  want, got = (
    slopes(build())(*inputs),
    slopes(build(remat_every=every))(*inputs),
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
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
