"""Compares the short convolution, both ways, with a float64 loop.

The SiLU follows it, and maybe a norm for each head. Rows differ in where
documents begin. The error of a tensor is its largest, divided by the largest
number of the tensor.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import causal_convolution

NAMES = 'y', 'd_state', 'd_x', 'd_kernel', 'd_bias'
BOUNDS = {  # by x's dtype
  'float32': 1e-6,  # measured: 2.9e-7
  'bfloat16': 1e-2,  # 7.6e-3
}
Arrays = tuple[np.ndarray, ...]


def draw(L: int, taps: int, E: int, dtype: str) -> tuple[Arrays, np.ndarray]:
  """Returns (state, x_BxLxE, kernel, bias, starts) and a cotangent of y."""
  rng = np.random.default_rng(0)
  state, x, dy = (rng.normal(size=(3, n, E)) for n in (taps - 1, L, L))
  starts = np.zeros((3, L), np.int32)
  starts[1, 0] = 1
  starts[2, [L // 3, L // 2, L - 1]] = 1
  kernel, bias = rng.normal(size=(taps, E)), rng.normal(size=E)
  state, x, dy = (a.astype(jnp.dtype(dtype)) for a in (state, x, dy))
  floats = (a.astype(np.float32) for a in (state, x, kernel, bias))
  return (*floats, starts), dy.astype(np.float32)


def errors(
  drawn: tuple[Arrays, np.ndarray],
  options: causal_convolution.Options,
  dtype: str,
) -> dict[str, float]:
  """Returns the error of y and of each gradient, by name.

  Args:
    drawn: of `draw`.
    options: how the convolution runs; with a SiLU.
    dtype: of x and of y.
  """
  (state, x, kernel, bias, starts), dy = drawn

  @jax.jit
  def passes(*floats):
    def run(state, x, kernel, bias):
      return causal_convolution.convolve(
        state, x, kernel, starts, bias, options
      )[1]

    y, back = jax.vjp(run, *floats)
    return y, *back(jnp.asarray(dy).astype(y.dtype))

  got = passes(state, jnp.asarray(x, dtype), kernel, bias)
  want = oracle(*drawn, options.norm)
  return {
    name: float(np.abs(np.float64(a) - b).max() / np.abs(b).max())
    for name, a, b in zip(NAMES, got, want, strict=True)
  }


def oracle(
  inputs: Arrays, dy_BxLxE: np.ndarray, norm: causal_convolution.Norm | None
) -> Arrays:
  """Returns y and the gradients of the state, x, the taps and the bias."""
  *floats, starts = inputs
  state, x, kernel, bias = (a.astype(np.float64) for a in floats)
  before, taps = state.shape[1], len(kernel)
  past = np.concatenate([state, x], 1)
  d_past, d_kernel = np.zeros_like(past), np.zeros_like(kernel)
  y, d_bias = np.zeros_like(x), np.zeros_like(bias)
  for b, t in np.ndindex(starts.shape):
    reached = []
    for d in range(taps):
      reached.append(before + t - d)
      if t >= d and starts[b, t - d]:
        break
    read = past[b, reached]
    sums = bias + (kernel[: len(read)] * read).sum(0)
    y[b, t], ds = _followed(sums, dy_BxLxE[b, t].astype(np.float64), norm)
    d_past[b, reached] += kernel[: len(read)] * ds
    d_kernel[: len(read)] += ds * read
    d_bias += ds
  return y, d_past[:, :before], d_past[:, before:], d_kernel, d_bias


def _followed(sums, dy, norm):
  """Returns the outputs of one step, and the gradient of its sums."""
  gate = 1 / (1 + np.exp(-sums))
  y, slope = sums * gate, gate * (1 + sums * (1 - gate))
  if norm is None:
    return y, dy * slope
  y, dy = (a.reshape(norm.heads, -1) for a in (y, dy))
  length = np.sqrt((y * y).sum(1, keepdims=True) + norm.epsilon)
  unit = y / length
  d_y = norm.scale / length * (dy - unit * (unit * dy).sum(1, keepdims=True))
  return (norm.scale * unit).ravel(), d_y.ravel() * slope
