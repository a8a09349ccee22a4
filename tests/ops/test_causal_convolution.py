"""The convolution against a loop in float64."""

import jax
import numpy as np
import pytest

from rnn_jax.ops import causal_convolution

CLOSE = 1e-6  # measured: 2.5e-7

convolve = jax.jit(causal_convolution.convolve)


def oracle(state, x_BxLxE, kernel_WxE, starts_BxL):
  """Reads back step by step, and stops where the document began."""
  taps = len(kernel_WxE)
  past = np.concatenate([np.float64(state), np.float64(x_BxLxE)], 1)
  y, kept = np.zeros(x_BxLxE.shape), np.zeros(state.shape)
  for b, t in np.ndindex(starts_BxL.shape):
    for d in range(taps):
      y[b, t] += kernel_WxE[d] * past[b, taps - 1 + t - d]
      if t >= d and starts_BxL[b, t - d]:
        break
  for b in range(len(kept)):
    for d in range(1, taps):
      kept[b, -d] = past[b, -d]
      if d <= starts_BxL.shape[1] and starts_BxL[b, -d]:
        break
  return kept, y


def draw(L, taps, seed=0):
  rng = np.random.default_rng(seed)
  state, x = rng.normal(size=(3, taps - 1, 2)), rng.normal(size=(3, L, 2))
  starts = np.zeros((3, L), np.int32)
  starts[1, 0] = 1
  starts[2, [L // 3, L // 2, L - 1]] = 1
  arrays = state, x, rng.normal(size=(taps, 2)), starts
  return [a if a is starts else np.float32(a) for a in arrays]


@pytest.mark.parametrize('taps', (1, 2, 4))
@pytest.mark.parametrize('L', (1, 2, 3, 11))
def test_equals_the_loop(L, taps):
  drawn = draw(L, taps)
  got = convolve(*drawn)
  for a, b in zip(got, oracle(*map(np.asarray, drawn)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)
  state, x, _, starts = drawn
  state_after = jax.jit(causal_convolution.next_state)(state, x, starts)
  assert np.array_equal(state_after, got[0])


def test_no_starts_are_starts_of_zero():
  state, x, kernel, starts = draw(7, 4)
  without = convolve(state, x, kernel)
  zeros = convolve(state, x, kernel, 0 * starts)
  for a, b in zip(without, zeros, strict=True):
    assert np.array_equal(a, b)


def test_single_steps_equal_one_pass_to_the_bit():
  state, x, kernel, starts = draw(11, 4)
  last, whole = convolve(state, x, kernel, starts)
  steps = []
  for t in range(11):
    now = slice(t, t + 1)
    state, y = convolve(state, x[:, now], kernel, starts[:, now])
    steps.append(y)
  assert np.array_equal(np.concatenate(steps, 1), whole)
  assert np.array_equal(state, last)


def test_only_the_taps_before_reach_a_step():
  state, x, kernel, starts = draw(9, 3)

  def output(x):
    return convolve(state, x, kernel, starts)[1][2, :, 0]

  slopes = jax.jit(jax.jacobian(output))(x)[:, 2, :, 0]
  reached = np.tril(np.ones((9, 9))) - np.tril(np.ones((9, 9)), -3)
  for start in (3, 4, 8):
    reached[start:, :start] = 0
  assert np.array_equal(slopes != 0, reached)
