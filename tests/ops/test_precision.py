"""Matmuls under each policy against the float64 product."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import precision

# x, w and the contracted axes, as linen's layers ask for them.
CONTRACTIONS = (
  ((5, 3), (3, 4), (1,), (0,)),  # Dense
  ((2, 5, 3), (3, 4), (2,), (0,)),
  ((2, 5, 3), (3, 2, 4), (2,), (0,)),  # DenseGeneral, several features
  ((2, 5, 3, 4), (3, 4, 2), (2, 3), (0, 1)),  # several axes
  ((2, 5, 3, 4), (4, 3, 2), (2, 3), (1, 0)),  # in another order
  ((4, 5, 3, 2), (3, 6, 4), (0, 2), (2, 0)),  # not the last ones
  ((3,), (3, 4), (0,), (0,)),
)
# Relative to the sum of the products' magnitudes.
TOLERANCE = {
  'float32': 2e-7,  # measured: 8e-8
  'bfloat16': 2**-7,  # two factors rounded by 2^-8 each; measured: 5e-3
}


def normal(*shape, seed=0):
  draw = np.random.default_rng(seed).normal(size=shape)
  return jnp.asarray(draw, jnp.float32)


def contract(x, w, x_axes, w_axes):
  return np.tensordot(np.float64(x), np.float64(w), (x_axes, w_axes))


def assert_close(got, factors, want, operands):
  """`want` is a function of the factors, linear in each."""
  size = want(*map(abs, factors))
  error = abs(np.float64(got) - want(*factors))
  assert (error <= TOLERANCE[operands] * size).all(), (error / size).max()


@pytest.mark.parametrize('operands', TOLERANCE)
@pytest.mark.parametrize(
  ('x_shape', 'w_shape', 'x_axes', 'w_axes'), CONTRACTIONS
)
def test_values_and_gradients_are_those_of_the_product(
  x_shape, w_shape, x_axes, w_axes, operands
):
  x, w = normal(*x_shape), normal(*w_shape, seed=1)
  numbers = ((x_axes, w_axes), ((), ()))
  y, back = jax.vjp(
    lambda x, w: precision.dot_general(x, w, numbers, operands), x, w
  )
  dy = normal(*y.shape, seed=2)
  _, plain = jax.vjp(
    lambda x, w: jax.lax.dot_general(x, w, numbers, precision='highest'), x, w
  )
  assert y.dtype == jnp.float32
  assert_close(y, (x, w), lambda *f: contract(*f, x_axes, w_axes), operands)
  # Each gradient is linear in dy and in the other factor.
  for n, (got, other) in enumerate(zip(back(dy), (w, x), strict=True)):
    want = plain(dy)[n]
    assert got.shape == want.shape and got.dtype == jnp.float32
    size = jnp.linalg.norm(dy) * jnp.linalg.norm(other)
    np.testing.assert_allclose(got, want, atol=TOLERANCE[operands] * size)


def test_16_bit_operands_are_rounded_once_and_added_in_32():
  x, w = normal(3, 512), normal(512, 2, seed=1)
  numbers = (((1,), (0,)), ((), ()))
  got = precision.dot_general(x, w, numbers, 'bfloat16')
  rounded = (np.float64(z.astype(jnp.bfloat16)) for z in (x, w))
  np.testing.assert_allclose(got, np.matmul(*rounded), rtol=0, atol=1e-4)
  assert not np.allclose(got, np.float64(x) @ np.float64(w), atol=1e-3)


def test_the_backward_pass_multiplies_in_16_bits_and_keeps_16_bits():
  x, w = normal(5, 3), normal(3, 4, seed=1)

  def product(x, w):
    return precision.dot_general(x, w, (((1,), (0,)), ((), ())), 'bfloat16')

  kept = jax.eval_shape(lambda x, w: jax.vjp(product, x, w)[1], x, w)
  assert {a.dtype.name for a in jax.tree.leaves(kept) if a.size} == {'bfloat16'}
  back = jax.make_jaxpr(jax.grad(lambda x, w: product(x, w).sum(), (0, 1)))
  products = [e for e in back(x, w).eqns if e.primitive.name == 'dot_general']
  factors = {v.aval.dtype.name for e in products for v in e.invars}
  assert len(products) >= 2 and factors == {'bfloat16'}
  assert {e.outvars[0].aval.dtype.name for e in products} == {'float32'}


@pytest.mark.parametrize('policy', precision.POLICIES)
def test_dense_under_a_policy_stores_activations_in_its_format(policy):
  policy = precision.POLICIES[policy]
  dense = nn.Dense(4, dtype=policy.activations, dot_general=policy.dot_general)
  x = normal(2, 5, 3).astype(policy.activations)
  params = dense.init(jax.random.key(0), x)
  assert dense.apply(params, x).dtype == policy.activations
  slopes = jax.grad(lambda p: dense.apply(p, x).astype('float32').sum())(params)
  for leaf in jax.tree.leaves((params, slopes)):
    assert leaf.dtype == jnp.float32


def test_batch_axes_are_refused_by_name():
  x = normal(2, 3, 3)
  numbers = (((2,), (1,)), ((0,), (0,)))
  with pytest.raises(NotImplementedError, match='no batch axes'):
    jax.grad(lambda x: precision.dot_general(x, x, numbers, 'float32').sum())(x)
