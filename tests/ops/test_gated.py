"""Gated recurrences in C++ against a loop in float64, both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import gated
from tests.support import close
from tests.support import differences

pytestmark = [pytest.mark.native, pytest.mark.slow]

CLOSE = 2e-6  # measured: 5e-7, of the largest number of each array
OUTPUTS = 'h_BxS', 'c_BxS', 'h_BxLxS'
# Units that end within a vector and fill some; rows that end within a block.
SHAPES = (1, 9, 3), (5, 4, 17), (3, 3, 130), (18, 2, 8), (2, 3, 96)
KINDS = tuple(gated.KINDS)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def oracle(kind, starts, h, c, u, U, b):
  """The module's docstring, step by step."""
  steps = []
  for t in range(u.shape[1]):
    begins = starts[:, t, None] != 0
    h = np.where(begins, 0.0, h)
    c = None if c is None else np.where(begins, 0.0, c)
    of_state = np.split(h @ U, gated.KINDS[kind].gates, -1)
    of_input = np.split(u[:, t], gated.KINDS[kind].gates, -1)
    a = [x + y for x, y in zip(of_input, of_state, strict=True)]
    if kind == 'gru':
      r, z = sigmoid(a[0]), sigmoid(a[1])
      n = np.tanh(of_input[2] + r * (of_state[2] + b))
      h = (1 - z) * n + z * h
    else:
      *i, f, g, o = a
      i = sigmoid(i[0]) if i else 1 - sigmoid(f)
      c = sigmoid(f) * c + i * np.tanh(g)
      h = sigmoid(o) * np.tanh(c)
    steps.append(h)
  return h, c, np.stack(steps, 1)


def draw(kind, shape, seed=0):
  """(h, c, u, U, b), starts and the gradients of the outputs."""
  (B, L, S), rng = shape, np.random.default_rng(seed)
  G, normal = gated.KINDS[kind].gates, rng.normal
  u = 2 * normal(size=(B, L, G * S))
  kernel = normal(size=(S, G * S)) / S**0.5
  h, c = normal(size=(2, B, S))
  # As they are in float32, to be the same numbers in both.
  inputs = [
    None if x is None else np.float64(np.float32(x))
    for x in (
      h,
      None if kind == 'gru' else c,
      u,
      kernel,
      normal(size=S) if kind == 'gru' else None,
    )
  ]
  starts = (rng.random((B, L)) < 0.3).astype(np.int32)
  starts[0] = 0
  cotangents = normal(size=(B, S)), normal(size=(B, S)), normal(size=(B, L, S))
  return inputs, starts, [np.float32(x) for x in cotangents]


@functools.partial(jax.jit, static_argnums=0)
def run(kind, inputs, starts=None):
  return gated.recurrence(kind, *inputs, starts_BxL=starts)


@functools.partial(jax.jit, static_argnums=0)
def both_ways(kind, inputs, starts, cotangents):
  """(outputs without residuals, outputs with residuals, gradients)."""

  def loss(inputs):
    outputs = run(kind, inputs, starts)
    return differences.total(outputs, cotangents), outputs

  gradients, outputs = jax.grad(loss, has_aux=True)(inputs)
  return run(kind, inputs, starts), outputs, gradients


def in_float32(inputs):
  return [None if x is None else np.float32(x) for x in inputs]


assert_close = functools.partial(close.check, tolerance=CLOSE)


@functools.partial(jax.jit, static_argnums=0)
def all_shapes(kind, drawn):
  """`both_ways` of each shape, of one program."""
  return [both_ways(kind, *arguments) for arguments in drawn]


@pytest.mark.parametrize('kind', KINDS)
def test_values_and_gradients_equal_the_oracle(kind):
  drawn = [draw(kind, shape) for shape in SHAPES]
  results = all_shapes(kind, [(in_float32(x), *rest) for x, *rest in drawn])
  for (inputs, starts, cotangents), result in zip(drawn, results, strict=True):
    values, outputs, gradients = result
    wanted = oracle(kind, starts, *inputs)
    for name, a, b, want in zip(OUTPUTS, values, outputs, wanted, strict=True):
      assert (a is None) == (want is None)
      if want is not None:
        assert_close(a, want, name=name)
        assert np.array_equal(a, b)
    differences.check(
      functools.partial(oracle, kind, starts),
      inputs,
      gradients,
      cotangents,
      scale=np.linalg.norm(cotangents[2]),
      bound=CLOSE,
    )


@pytest.mark.parametrize('kind', KINDS)
def test_two_halves_equal_the_whole_row(kind):
  (h, c, u, *weights), *_ = draw(kind, (3, 6, 5))
  whole = run(kind, (h, c, u, *weights))
  first = run(kind, (h, c, u[:, :3], *weights))
  second = run(kind, (*first[:2], u[:, 3:], *weights))
  assert np.array_equal(whole[0], second[0])
  assert np.array_equal(whole[2], np.concatenate([first[2], second[2]], 1))


@pytest.mark.parametrize('kind', KINDS)
def test_a_row_is_the_same_among_any_others(kind):
  """Blocks of rows follow from B and the threads; no sum depends on them."""
  (h, c, u, *weights), *_ = draw(kind, (7, 3, 37))
  _, _, together = run(kind, (h, c, u, *weights))
  c = [None] * 7 if c is None else c[:, None]
  for n in range(7):
    _, _, single = run(kind, (h[n, None], c[n], u[n, None], *weights))
    assert np.array_equal(single[0], together[n])


def test_gates_saturate_and_propagate_nan():
  for kind in KINDS:
    (h, c, u, U, b), *_ = draw(kind, (1, 1, 8))
    limits = [-300.0, 300.0, -1e30, 1e30, 89.0, -89.0, 0.0, np.nan]
    u = np.array(limits * gated.KINDS[kind].gates)[None, None]
    outputs = run(kind, (h, c, u, 0 * U, b))
    with np.errstate(over='ignore'):
      wanted = oracle(kind, np.zeros((1, 1)), h, c, u, 0 * U, b)
    for got, want in zip(outputs, wanted, strict=True):
      if want is not None:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-30)


def test_16_bit_inputs_are_converted_to_float32():
  (h, c, u, U, _), *_ = draw('lstm', (2, 3, 5))
  u = jnp.asarray(u, jnp.bfloat16)
  state, _, y = gated.recurrence('lstm', *in_float32((h, c)), u, jnp.float32(U))
  want, _, _ = oracle('lstm', np.zeros((2, 3)), h, c, np.float64(u), U, None)
  assert y.dtype == jnp.bfloat16 and state.dtype == jnp.float32
  assert_close(state, want)


@pytest.mark.parametrize('mapped_kernel', (False, True))
def test_a_mapped_axis_is_more_rows_or_sequential_calls(mapped_kernel):
  drawn = [draw('gru', (2, 3, 5), seed) for seed in (1, 2)]
  starts = jnp.stack([starts for _, starts, _ in drawn])
  h, u, U, b = (
    jnp.stack([jnp.float32(inputs[n]) for inputs, _, _ in drawn])
    for n in (0, 2, 3, 4)
  )
  kernels = U if mapped_kernel else jnp.stack([U[0]] * 2)

  def loss(h, u, kernel, b, starts):
    _, _, y = gated.recurrence('gru', h, None, u, kernel, b, starts_BxL=starts)
    return jnp.sum(jnp.sin(y))

  run = jax.jit(jax.grad(loss, (0, 1, 2)))
  axes = 0, 0, 0 if mapped_kernel else None, None, 0
  given = U if mapped_kernel else U[0]
  got = jax.jit(jax.vmap(run, axes))(h, u, given, b[0], starts)
  for n in range(2):
    want = run(h[n], u[n], kernels[n], b[0], starts[n])
    for x, y in zip(got, want, strict=True):
      assert_close(x[n], np.asarray(y))


def test_second_derivatives_are_refused():
  (h, c, u, U, _), *_ = draw('lstm', (1, 2, 3))

  def loss(u):
    return jnp.sum(run('lstm', (h, c, u, U, None))[2])

  u = jnp.float32(u)
  with pytest.raises(NotImplementedError, match="use impl='scan'"):
    jax.grad(lambda u: jnp.sum(jax.grad(loss)(u) ** 2))(u)


@pytest.mark.parametrize(
  ('kind', 'changes', 'message'),
  (
    ('elman', {}, "kind='elman': choose one of"),
    ('gru', {}, "c_BxS with kind='gru': give None"),
    ('lstm', {'bias_S': jnp.zeros(3)}, "bias_S with kind='lstm': give None"),
    ('lstm', {'u_BxLx_': jnp.zeros((2, 4, 9))}, 'u_BxLx_ has shape'),
    ('lstm', {'u_BxLx_': jnp.zeros((2, 0, 12))}, 'u_BxLx_ has L=0'),
    ('lstm', {'kernel_Sx_': jnp.zeros((3, 9))}, 'kernel_Sx_ has shape'),
    ('lstm', {'starts_BxL': jnp.zeros((2, 3))}, 'starts_BxL has shape'),
  ),
)
def test_mismatched_arguments_are_refused(kind, changes, message):
  inputs = {
    'h_BxS': jnp.zeros((2, 3)),
    'c_BxS': jnp.zeros((2, 3)),
    'u_BxLx_': jnp.zeros((2, 4, 12)),
    'kernel_Sx_': jnp.zeros((3, 12)),
  }
  with pytest.raises(ValueError, match=message):
    gated.recurrence(kind, **inputs | changes)
