"""Matmuls under each policy against the float64 product."""

import dataclasses
import functools
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import precision
from rnn_jax.system import target
from tests.ops import test_eight_bits
from tests.support import draws

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
# Relative to the product of the factors' norms.
TOLERANCE = {
  'float32': 2e-7,  # measured: 8e-8
  'bfloat16': 2**-7,  # two factors rounded by 2^-8 each; measured: 5e-3
  'float16': 2**-10,  # by 2^-11 each; measured: 3e-4
}
DENSE = (((1,), (0,)), ((), ()))
PLAIN = functools.partial(jax.lax.dot_general, precision='highest')
# Only a GPU has TF32.
HERE = sorted({*precision.POLICIES} - {'tf32'})


def drawn():
  """x, w and the gradient of their product, for each of CONTRACTIONS."""
  made = []
  for x_shape, w_shape, *axes in CONTRACTIONS:
    x, w = draws.normal(*x_shape), draws.normal(*w_shape, seed=1)
    shape = np.tensordot(x, w, axes).shape
    made.append((x, w, draws.normal(*shape, seed=2)))
  return made


@functools.partial(jax.jit, static_argnums=0)
def all_ways(product, inputs):
  """Each product, and its gradients: of one program."""
  results = []
  for (x, w, dy), (_, _, *axes) in zip(inputs, CONTRACTIONS, strict=True):
    numbers = tuple(axes), ((), ())
    y, back = jax.vjp(lambda x, w, n=numbers: product(x, w, n), x, w)
    results.append((y, *back(dy)))
  return results


@pytest.mark.parametrize(
  ('operands', 'rows'),
  (*((name, precision.ROWS) for name in TOLERANCE), ('float32', 5)),
)
def test_values_and_gradients_are_those_of_the_product(
  operands, rows, monkeypatch
):
  monkeypatch.setattr(precision, 'ROWS', rows)
  ours = functools.partial(precision.dot_general, operands=operands)
  results = all_ways(ours, drawn()), all_ways(PLAIN, drawn())
  for got, (_, want_x, want_w), (x, w, dy), (_, _, *axes) in zip(
    *results, drawn(), CONTRACTIONS, strict=True
  ):
    assert {a.dtype for a in got} == {np.dtype('float32')}
    exact = np.tensordot(np.float64(x), np.float64(w), axes)
    assert_close(got[0], exact, (x, w), operands)
    assert_close(got[1], want_x, (dy, w), operands)
    assert_close(got[2], want_w, (x, dy), operands)


def assert_close(got, want, factors, operands):
  size = np.prod([np.linalg.norm(factor) for factor in factors])
  np.testing.assert_allclose(
    np.float64(got), want, rtol=0, atol=TOLERANCE[operands] * size
  )


def test_16_bit_operands_are_rounded_once_and_added_in_32():
  x, w = draws.normal(3, 512), draws.normal(512, 2, seed=1)
  numbers = (((1,), (0,)), ((), ()))
  got = precision.dot_general(x, w, numbers, 'bfloat16')
  rounded = (np.float64(z.astype(jnp.bfloat16)) for z in (x, w))
  np.testing.assert_allclose(got, np.matmul(*rounded), rtol=0, atol=1e-4)
  assert not np.allclose(got, np.float64(x) @ np.float64(w), atol=1e-3)


def test_the_backward_pass_multiplies_in_16_bits_and_keeps_16_bits():
  x, w = draws.normal(5, 3), draws.normal(3, 4, seed=1)

  def product(x, w):
    return precision.dot_general(x, w, (((1,), (0,)), ((), ())), 'bfloat16')

  kept = jax.eval_shape(lambda x, w: jax.vjp(product, x, w)[1], x, w)
  assert {a.dtype.name for a in jax.tree.leaves(kept) if a.size} == {'bfloat16'}
  back = jax.make_jaxpr(jax.grad(lambda x, w: product(x, w).sum(), (0, 1)))
  products = [e for e in back(x, w).eqns if e.primitive.name == 'dot_general']
  factors = {v.aval.dtype.name for e in products for v in e.invars}
  assert len(products) >= 2 and factors == {'bfloat16'}
  assert {e.outvars[0].aval.dtype.name for e in products} == {'float32'}


@pytest.mark.parametrize('policy', HERE)
def test_dense_under_a_policy_stores_activations_in_its_format(policy):
  policy = precision.POLICIES[policy]
  dense = nn.Dense(4, dtype=policy.activations, dot_general=policy.dot_general)
  x = draws.normal(2, 5, 3).astype(policy.activations)
  params = draws.parameters(dense.init, x)
  assert jax.eval_shape(dense.apply, params, x).dtype == policy.activations
  slopes = jax.jit(
    jax.grad(lambda p: dense.apply(p, x).astype('float32').sum())
  )(params)
  for leaf in jax.tree.leaves((params, slopes)):
    assert leaf.dtype == jnp.float32


def lowered_for_a_gpu(operands):
  """The program of a matmul and of its gradients."""

  def both(x, w):
    y, back = jax.vjp(
      lambda x, w: precision.dot_general(x, w, DENSE, operands), x, w
    )
    return y, back(y)

  traced = jax.jit(both).trace(draws.normal(5, 3), draws.normal(3, 4))
  return traced.lower(lowering_platforms=('cuda',)).as_text()


def test_tf32_is_requested_by_name_and_float32_stays_exact():
  tf32, exact = map(lowered_for_a_gpu, ('tf32', 'float32'))
  assert (
    tf32.count('dot_general') == tf32.count('lhs_precision_type = tf32') == 3
  )
  assert exact.count('precision = [HIGHEST, HIGHEST]') == 3
  assert 'tf32' not in exact and 'f16' not in tf32


@pytest.mark.parametrize(
  ('capability', 'has'),
  (
    (None, False),
    ('7.5', False),
    ('8.0', True),
    ('12.0', True),
    ('gfx942', False),
  ),
)
def test_tf32_needs_a_gpu_that_has_it(capability, has):
  device = types.SimpleNamespace(device_kind='this one')
  if capability:
    device.compute_capability = capability
  reason = precision.lacking('tf32', device)
  assert reason == '' if has else '(this one) has no TensorFloat-32' in reason
  assert has or "use 'float32'" in reason
  for operands in {*precision.FORMATS} - {'tf32'}:
    assert precision.lacking(operands, device) == ''


@pytest.mark.parametrize('name', HERE)
@pytest.mark.parametrize('kind', ('int8', 'fp8'))
def test_a_quantized_policy_has_the_gradients_of_the_plain_one(name, kind):
  x, w, dy = (
    draws.normal(6, 40),
    draws.normal(40, 4, seed=1),
    draws.normal(6, 4, seed=2),
  )
  results = []
  for quantized in ('', kind):
    policy = precision.policy(name, quantized)
    y, back = jax.vjp(
      jax.jit(lambda x, w: policy.dot_general(x, w, DENSE)),  # noqa: B023
      x.astype(policy.activations),
      w,
    )
    results.append((y, back(dy.astype(policy.activations))))
  (plain, slopes), (rounded, straight) = results
  assert rounded.dtype == policy.activations
  for a, b in zip(slopes, straight, strict=True):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
  want = by_hand(x.astype(policy.activations), w, kind)
  error = jnp.finfo(policy.activations).eps
  np.testing.assert_allclose(np.float64(rounded), want, rtol=2 * error)
  assert not np.array_equal(plain, rounded)


def by_hand(x, w, kind):
  """The product of both factors rounded to 8 bits, in float64."""
  (x_scale, x_8), (w_scale, w_8) = (
    test_eight_bits.by_hand(np.float32(a), axis, kind)
    for a, axis in ((x, 1), (w, 0))
  )
  return x_scale * (x_8 @ w_8) * w_scale


def test_batch_axes_are_refused_by_name():
  x = draws.normal(2, 3, 3)
  numbers = (((2,), (1,)), ((0,), (0,)))
  with pytest.raises(NotImplementedError, match='no batch axes'):
    jax.grad(lambda x: precision.dot_general(x, x, numbers, 'float32').sum())(x)


def test_a_weight_gradient_of_many_rows_is_a_sum_of_parts(monkeypatch):
  monkeypatch.setattr(precision, 'ROWS', 4)
  numbers = ((2,), (0,)), ((), ())

  def loss(w, x):
    return precision.dot_general(x, w, numbers, 'float32').sum()

  traced = jax.make_jaxpr(jax.grad(loss))(
    draws.normal(3, 5), draws.normal(2, 6, 3)
  )
  assert ':f32[3,3,5]' in str(traced)  # 12 rows are three times 4


def rounded(x, operands):
  """What a format leaves of float32 numbers, in float64."""
  if operands == 'tf32':
    bits = np.asarray(x).view(np.int32) & -(2**13)
    return np.float64(bits.view(np.float32))
  return np.float64(x.astype(precision.FORMATS[operands][0]))


@pytest.mark.parametrize('operands', precision.RECURRENT)
def test_a_recurrence_s_products_round_each_factor_once(operands):
  spec, x, y = (
    'bij,bkj->bik',
    draws.normal(2, 3, 64),
    draws.normal(2, 5, 64, seed=1),
  )
  d = draws.normal(2, 3, 5, seed=2)
  product = functools.partial(precision.einsum, spec, operands=operands)
  out, back = jax.vjp(jax.jit(product), x, y)
  x_, y_, d_ = (rounded(a, operands) for a in (x, y, d))
  for got, want in (
    (out, np.einsum(spec, x_, y_)),
    (back(d)[0], np.einsum('bik,bkj->bij', d_, y_)),
    (back(d)[1], np.einsum('bik,bij->bkj', d_, x_)),
  ):
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    if operands != 'float32':
      exact = np.einsum(spec, np.float64(x), np.float64(y))
      assert abs(out - exact).max() > 1e-3


def test_a_recurrence_follows_the_policy_on_a_gpu(monkeypatch):
  def formats(impl, **changes):
    return [
      dataclasses.replace(policy, **changes).of_recurrence(impl)
      for policy in precision.POLICIES.values()
    ]

  assert {*formats('chunked')} == {'float32'}
  assert {*formats('auto', recurrence='bfloat16')} == {'bfloat16'}
  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  assert formats('auto') == formats('pallas') == formats('chunked')
  assert dict(zip(precision.POLICIES, formats('auto'), strict=True)) == {
    'float32': 'float32',
    'tf32': 'tf32',
    'bfloat16': 'bfloat16',
    'bfloat16_operands': 'bfloat16',
    'float16': 'float32',
  }
  assert {*formats('auto', recurrence='float32')} == {'float32'}
  for impl in ('step', 'scan', 'native', 'associative'):
    assert {*formats(impl, recurrence='bfloat16')} == {'float32'}


def test_a_device_without_8_bit_floats_is_named():
  (cpu,) = jax.devices('cpu')[:1]
  assert precision.emulated('fp8', cpu).startswith('this device (cpu) multip')
  ada = types.SimpleNamespace(compute_capability='8.9', device_kind='L4')
  assert precision.emulated('fp8', ada) == ''
  assert precision.emulated('int8', cpu) == ''
