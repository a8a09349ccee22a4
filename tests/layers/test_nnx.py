"""A layer in a model of flax.nnx, through nnx.bridge."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from rnn_jax import layers
from tests.support import draws

B, L, D, F = 3, 5, 4, 6
LENGTHS = np.array([5, 2, 1], np.int32)
CLOSE = 3e-6


class Model(nnx.Module):
  def __init__(self, rngs):
    both = layers.Bidirectional(layers.LSTM(F))
    x = jnp.zeros((1, 1, D))
    self.encoder = nnx.bridge.ToNNX(both, rngs=rngs).lazy_init(x)
    self.head = nnx.Linear(2 * F, 2, rngs=rngs)

  def __call__(self, x, lengths):
    return self.head(layers.last(self.encoder(x, lengths=lengths), lengths))


@jax.numpy_rank_promotion('allow')  # nnx.Linear promotes
def test_gradients_are_linen_s_and_a_step_lowers_the_loss():
  model, x = Model(nnx.Rngs(0)), draws.normal(B, L, D)
  optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

  def loss(logits):
    labels = jnp.array([0, 1, 0])
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).sum()

  @nnx.jit
  def train(model, optimizer):
    value, gradient = nnx.value_and_grad(lambda m: loss(m(x, LENGTHS)))(model)
    optimizer.update(model, gradient)
    return value, gradient

  before = nnx.to_pure_dict(nnx.state(model, nnx.Param))
  value, gradient = train(model, optimizer)
  gradient = nnx.to_pure_dict(gradient)

  @jax.jit
  @jax.value_and_grad
  def in_linen(params):
    layer = model.encoder.to_nnx__module
    y = layer.apply({'params': params}, x, lengths=LENGTHS)
    last, head = layers.last(y, LENGTHS), before['head']
    return loss(last @ head['kernel'] + head['bias'])

  want, slopes = in_linen(before['encoder'])
  np.testing.assert_allclose(value, want, rtol=CLOSE)
  for a, b in zip(
    *map(jax.tree.leaves, (gradient['encoder'], slopes)), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)
  assert train(model, optimizer)[0] < value


def test_states_pass_through_the_bridge():
  x = draws.normal(B, L, D)
  layer = nnx.bridge.ToNNX(layers.GRU(F), rngs=nnx.Rngs(0)).lazy_init(x)
  state, y = nnx.jit(lambda layer, x: layer.scan(None, x))(layer, x)
  now, outputs = layer.init_state(B), []
  one = nnx.jit(lambda layer, state, x: layer.step(state, x))
  for t in range(L):
    now, out = one(layer, now, x[:, t])
    outputs.append(out)
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=CLOSE)
  jax.tree.map(close, (now, np.stack(outputs, 1)), (state, y))
