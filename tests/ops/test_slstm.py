"""The sLSTM in C++ against a softmax over its past in float64, both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from rnn_jax.ops import slstm
from tests.support import close
from tests.support import differences

pytestmark = [pytest.mark.native, pytest.mark.slow]

CLOSE = 2e-6  # measured: 8e-7, of the largest number of each array
SUMS = 1e-4  # of logs of hundreds; measured: 1.4e-5
# Units that end within a vector and fill some; rows that end within a block.
SHAPES = (
  (1, 9, 1, 3),
  (5, 4, 3, 17),
  (3, 3, 2, 70),
  (18, 2, 2, 8),
  (2, 3, 4, 32),
)
FORGETS = pytest.mark.parametrize('exponential', (False, True))
NAMES = 'h', 'c / n', 'm + log n', 'y'


def oracle(exponential, starts, h, c, n, m, u, R):
  """(h, c / n, m + log n, y): weights of the past, without a stabilizer.

  c / n is a mean of c / n of the state and of each z since.
  """
  with np.errstate(divide='ignore', invalid='ignore'):
    logs, past = [m + np.log(n)], [np.where(n == 0, 0.0, c / n)]
  (H, K, _), y = R.shape, []
  for t in range(u.shape[1]):
    begins = starts[:, t, None] != 0
    h = np.where(begins, 0.0, h)
    logs = [np.where(begins, -np.inf, log) for log in logs]
    own = np.einsum('bhk,hkj->bhj', h.reshape(-1, H, K), R)
    own = own.reshape(-1, H, 4, K).swapaxes(1, 2).reshape(len(h), -1)
    i, f, z, o = np.split(u[:, t] + own, 4, -1)
    logf = f if exponential else -np.logaddexp(0, -f)
    logs, past = [log + logf for log in logs] + [i], [*past, np.tanh(z)]
    top = np.max(logs, 0)
    weights = np.exp(np.array(logs) - top)
    mean = (weights * past).sum(0) / weights.sum(0)
    h = mean / (1 + np.exp(-o))
    y.append(h)
  return h, mean, top + np.log(weights.sum(0)), np.stack(y, 1)


def draw(shape, seed=0, gates=2.0):
  """(h, c, n, m, u, R), starts and the gradients of the outputs."""
  (B, L, H, K), rng = shape, np.random.default_rng(seed)
  S, normal = H * K, rng.normal
  u = 2 * normal(size=(B, L, 4, S))
  u[:, :, :2] *= gates / 2
  inputs = [
    normal(size=(B, S)),
    normal(size=(B, S)),
    rng.uniform(1, 3, (B, S)),
    gates * normal(size=(B, S)),
    u.reshape(B, L, -1),
    normal(size=(H, K, 4 * K)) / K**0.5,
  ]
  # As they are in float32, to be the same numbers in both.
  inputs = [np.float64(np.float32(x)) for x in inputs]
  starts = (rng.random((B, L)) < 0.3).astype(np.int32)
  starts[0] = 0
  cotangents = [np.float32(normal(size=(B, S))) for _ in range(3)]
  return inputs, starts, [*cotangents, np.float32(normal(size=(B, L, S)))]


@functools.partial(jax.jit, static_argnums=0)
def run(exponential, inputs, starts=None):
  *state, u, kernel = inputs
  return slstm.recurrence(
    slstm.State(*state), u, kernel, exponential=exponential, starts_BxL=starts
  )


def measured(exponential, inputs, starts):
  """What `oracle` returns."""
  state, y = run(exponential, inputs, starts)
  ratio = state.c_BxS / state.n_BxS
  return state.h_BxS, ratio, state.m_BxS + jnp.log(state.n_BxS), y


@functools.partial(jax.jit, static_argnums=0)
def both_ways(exponential, drawn):
  """(outputs without residuals, outputs with them, gradients) of each."""

  def of(inputs, starts, cotangents):
    def loss(inputs):
      outputs = measured(exponential, inputs, starts)
      return differences.total(outputs, cotangents), outputs

    gradients, outputs = jax.grad(loss, has_aux=True)(inputs)
    return measured(exponential, inputs, starts), outputs, gradients

  return [of(*arguments) for arguments in drawn]


def in_float32(inputs):
  return [np.float32(x) for x in inputs]


assert_close = functools.partial(close.check, tolerance=CLOSE)


def check(exponential, drawn, tolerance=CLOSE):
  results = both_ways(
    exponential, [(in_float32(x), *rest) for x, *rest in drawn]
  )
  for (inputs, starts, cotangents), result in zip(drawn, results, strict=True):
    values, outputs, gradients = result
    wanted = oracle(exponential, starts, *inputs)
    for name, a, b, want in zip(NAMES, values, outputs, wanted, strict=True):
      close.check(a, want, tolerance, floor=1, name=name)
      assert np.array_equal(a, b)
    differences.check(
      functools.partial(oracle, exponential, starts),
      inputs,
      gradients,
      cotangents,
      scale=np.linalg.norm(cotangents[3]),
      bound=tolerance,
    )


@FORGETS
def test_values_and_gradients_equal_the_oracle(exponential):
  check(exponential, [draw(shape) for shape in SHAPES])


@FORGETS
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_gates_of_a_hundred_have_the_digits_of_their_sums(exponential, seed):
  """exp(100) overflows, and products of a few such gates do in float64."""
  check(exponential, [draw((2, 9, 2, 5), seed, gates=100.0)], SUMS)


@FORGETS
def test_two_halves_equal_the_whole_row(exponential):
  (*state, u, R), *_ = draw((3, 6, 2, 5))
  whole, y = run(exponential, (*state, u, R))
  first, y_1 = run(exponential, (*state, u[:, :3], R))
  second, y_2 = run(exponential, (*first, u[:, 3:], R))
  for a, b in zip(whole, second, strict=True):
    assert np.array_equal(a, b)
  assert np.array_equal(y, np.concatenate([y_1, y_2], 1))


def test_a_row_is_the_same_among_any_others():
  """Blocks of rows follow from B, H and the threads; no sum depends on them."""
  (*state, u, R), *_ = draw((7, 3, 2, 37))
  _, together = run(False, (*state, u, R))
  for n in range(7):
    _, single = run(False, (*(x[n, None] for x in (*state, u)), R))
    assert np.array_equal(single[0], together[n])


@FORGETS
def test_a_state_of_zeros_has_no_past(exponential):
  """Not even where exp(i) is 0 in float32."""
  (*_, u, R), *_ = draw((2, 3, 2, 5))
  zeros = np.zeros((2, 10))
  for log_i in (-100.0, -1e4, 100.0):
    u[:, 0, :10] = log_i
    _, y = run(exponential, (zeros, zeros, zeros, zeros, u, R))
    *_, z, o = np.split(u[:, 0], 4, -1)
    assert_close(y[:, 0], np.tanh(z) / (1 + np.exp(-o)))
    marks = np.zeros((2, 3), np.int32)
    marks[:, 0] = 1
    (*state, _, _), *_ = draw((2, 3, 2, 5))
    _, again = run(exponential, (*state, u, R), marks)
    assert np.array_equal(y, again)


def test_nan_propagates():
  (*state, u, R), *_ = draw((1, 1, 1, 8))
  for part in range(4):
    broken = u.copy()
    broken[0, 0, part * 8] = np.nan
    _, y = run(False, (*state, broken, 0 * R))
    assert np.isnan(y[0, 0, 0]) and np.isfinite(y[0, 0, 1:]).all()


def test_16_bit_inputs_are_converted_to_float32():
  (*state, u, R), starts, _ = draw((2, 3, 2, 5))
  u = jnp.asarray(u, jnp.bfloat16)
  after, y = run(False, (*in_float32(state), u, jnp.float32(R)))
  want, *_ = oracle(False, 0 * starts, *state, np.float64(u), R)
  assert y.dtype == jnp.bfloat16 and after.h_BxS.dtype == jnp.float32
  assert_close(after.h_BxS, want)


@pytest.mark.parametrize('mapped_kernel', (False, True))
def test_a_mapped_axis_is_more_rows_or_sequential_calls(mapped_kernel):
  drawn = [draw((2, 3, 2, 5), seed) for seed in (1, 2)]
  *state, u, R = (
    jnp.stack([jnp.float32(x) for x in pair])
    for pair in zip(*(inputs for inputs, *_ in drawn), strict=True)
  )
  starts = jnp.stack([starts for _, starts, _ in drawn])
  kernels = R if mapped_kernel else jnp.stack([R[0]] * 2)

  def loss(state, u, kernel, starts):
    _, y = slstm.recurrence(slstm.State(*state), u, kernel, starts_BxL=starts)
    return jnp.sum(jnp.sin(y))

  grads = jax.jit(jax.grad(loss, (0, 1, 2)))
  axes = 0, 0, 0 if mapped_kernel else None, 0
  shared = R if mapped_kernel else R[0]
  got = jax.jit(jax.vmap(grads, axes))(state, u, shared, starts)
  for n in range(2):
    want = grads([x[n] for x in state], u[n], kernels[n], starts[n])
    assert_close(jax.tree.map(lambda x, n=n: x[n], got), want)


def test_second_derivatives_are_refused():
  (*state, u, R), *_ = draw((1, 2, 1, 3))

  def loss(u):
    return jnp.sum(run(False, (*state, u, R))[1])

  with pytest.raises(NotImplementedError, match="use impl='scan'"):
    jax.grad(lambda u: jnp.sum(jax.grad(loss)(u) ** 2))(jnp.float32(u))


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'u_BxLx_': jnp.zeros((2, 4, 9))}, 'u_BxLx_ has shape'),
    ({'u_BxLx_': jnp.zeros((2, 0, 24))}, 'u_BxLx_ has L=0'),
    ({'kernel_HxKx_': jnp.zeros((2, 3, 9))}, 'kernel_HxKx_ has shape'),
    ({'kernel_HxKx_': jnp.zeros((1, 3, 12))}, 'state.h_BxS has shape'),
    ({'starts_BxL': jnp.zeros((2, 3))}, 'starts_BxL has shape'),
  ),
)
def test_mismatched_arguments_are_refused(changes, message):
  inputs = {
    'state': slstm.State(*[jnp.zeros((2, 6))] * 4),
    'u_BxLx_': jnp.zeros((2, 4, 24)),
    'kernel_HxKx_': jnp.zeros((2, 3, 12)),
  }
  with pytest.raises(ValueError, match=message):
    slstm.recurrence(**inputs | changes)
