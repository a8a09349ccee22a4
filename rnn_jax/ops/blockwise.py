"""Block-wise quantization: one byte per number, one float32 per block.

An array, in row-major order, is split into blocks of 256 numbers. A block
stores its largest magnitude, and each number the index of the nearest entry of
a code:

    absmax_n = max_i |x_ni|
    c_ni     = argmin_j |x_ni / absmax_n - code_j|
    x_ni    ~= absmax_n * code[c_ni]

The dynamic tree code covers seven decades of magnitude in equal steps within
each decade, with more steps in larger decades: it suits numbers of very
different size. Decade k = 0..6 has n_k entries, the midpoints of n_k + 1
equally spaced points from .1 to 1, times 10^(k - 6). A signed code has
n_k = 2^k, each with both signs; an unsigned one spends the sign bit on the
fraction, n_k = 2^(k + 1). With 0 and 1 that makes 256 entries. -1 isn't an
entry: the nearest one is -.993.
Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.
"""

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 256
DECADES = 7


def dynamic_code(signed: bool) -> np.ndarray:
  """Returns the 256 sorted entries of the code, float32 in [-1, 1]."""
  entries = [0.0, 1.0]
  for decade in range(DECADES):
    count = 2**decade if signed else 2 ** (decade + 1)
    edges = np.linspace(0.1, 1.0, count + 1)
    midpoints = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - DECADES + 1)
    entries += [*midpoints, *(-midpoints if signed else ())]
  return np.sort(np.array(entries, np.float32))


SIGNED = dynamic_code(True)
UNSIGNED = dynamic_code(False)


def quantize(x: jax.Array, code: np.ndarray) -> tuple[jax.Array, jax.Array]:
  """Quantizes an array to one byte per number.

  Args:
    x: finite float32 numbers of any shape; 0 or more for UNSIGNED.
    code: SIGNED or UNSIGNED.

  Returns:
    (codes, absmax_N): uint8 in the shape of x, and one float32 for each of the
    N blocks, the last of which may be shorter. A number halfway between two
    entries takes the lower one.
  """
  x_NxC = _blocks(x)
  absmax_N = jnp.max(jnp.abs(x_NxC), 1)
  scale_N = jnp.where(absmax_N > 0, absmax_N, 1)
  codes_NxC = _nearest(x_NxC / scale_N[:, None], code)
  codes = codes_NxC.astype(jnp.uint8).reshape(-1)[: x.size]
  return codes.reshape(x.shape), absmax_N


def dequantize(
  codes: jax.Array, absmax_N: jax.Array, code: np.ndarray
) -> jax.Array:
  """Returns the float32 numbers of `quantize`'s codes, in their shape."""
  entries = jnp.asarray(code).at[codes].get(mode='promise_in_bounds')
  x_NxC = _blocks(entries) * absmax_N[:, None]
  return x_NxC.reshape(-1)[: codes.size].reshape(codes.shape)


def _nearest(x, code):
  """Returns the index of the nearest entry, by binary search."""
  # jnp.searchsorted with its methods takes 16 to 1052 bytes per number and 2.5
  # to 130 times as long on a CPU.
  midpoints = jnp.asarray((code[:-1] + code[1:]) / 2)
  index = jnp.where(x > midpoints[127], 128, 0)
  for half in (64, 32, 16, 8, 4, 2, 1):
    midpoint = midpoints.at[index + half - 1].get(mode='promise_in_bounds')
    index = index + half * (x > midpoint)
  return index


def _blocks(x):
  """Returns rows of BLOCK numbers, the last one padded with zeros."""
  flat = x.reshape(-1)
  return jnp.pad(flat, (0, -x.size % BLOCK)).reshape(-1, BLOCK)
