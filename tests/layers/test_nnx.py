"""A layer as a module of flax.nnx, through nnx.bridge.

test_guide.py trains a model of it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnn_jax import layers
from tests.support import draws

B, L, D, F = 3, 5, 4, 6
LENGTHS = np.array([5, 2, 1], np.int32)
CLOSE = 3e-6
X = draws.normal(B, L, D)


def assert_close(got, want):
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=CLOSE)
  jax.tree.map(close, got, want)


@pytest.fixture(scope='module', name='layer')
def _layer():
  bridge = nnx.bridge.ToNNX(layers.GRU(F), rngs=nnx.Rngs(0))
  return bridge.lazy_init(X)


def test_gradients_are_linen_s(layer):
  @nnx.jit
  @nnx.value_and_grad
  def in_nnx(layer):
    return jnp.sin(layer(X, lengths=LENGTHS)).sum()

  @jax.jit
  @jax.value_and_grad
  def in_linen(params):
    y = layer.to_nnx__module.apply({'params': params}, X, lengths=LENGTHS)
    return jnp.sin(y).sum()

  value, gradient = in_nnx(layer)
  params = nnx.to_pure_dict(nnx.state(layer, nnx.Param))
  assert_close((value, nnx.to_pure_dict(gradient)), in_linen(params))


def test_states_pass_through_the_bridge(layer):
  state, y = nnx.jit(lambda layer, x: layer.scan(None, x))(layer, X)
  now, outputs = layer.init_state(B), []
  one = nnx.jit(lambda layer, state, x: layer.step(state, x))
  for t in range(L):
    now, out = one(layer, now, X[:, t])
    outputs.append(out)
  assert_close((now, np.stack(outputs, 1)), (state, y))
