"""Block-wise quantization: a byte a number, and a float32 for each block.

An array, in row-major order, is cut into blocks of 256 numbers. Of a block its
largest magnitude is kept, and of each number the nearest entry of a code:

    absmax_n = max_i |x_ni|
    c_ni     = argmin_j |x_ni / absmax_n - code_j|
    x_ni    ~= absmax_n * code[c_ni]

The dynamic tree code spends its bits on seven decades of magnitude, and within
a decade on equal steps, the more of them the larger the decade: good for
numbers of very different size. Decade k = 0..6 has n_k entries, the middles
between neighbours of n_k + 1 equally spaced points from .1 to 1, times
10^(k - 6). A signed code has n_k = 2^k, each with both signs; an unsigned one
spends the sign's bit on the fraction, n_k = 2^(k + 1). With 0 and 1 that makes
256 entries. -1 is none of them: the nearest to it is -.993.
Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022.
"""

import jax.numpy as jnp
import numpy as np

BLOCK = 256
DECADES = 7


def dynamic_code(signed: bool) -> np.ndarray:
  """The 256 entries of the dynamic tree code, rising, float32 on [-1, 1]."""
  entries = [0.0, 1.0]
  for decade in range(DECADES):
    count = 2**decade if signed else 2 ** (decade + 1)
    edges = np.linspace(0.1, 1.0, count + 1)
    middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - DECADES + 1)
    entries += [*middles, *(-middles if signed else ())]
  return np.sort(np.float32(entries))


SIGNED = dynamic_code(True)
UNSIGNED = dynamic_code(False)


def quantize(x, code):
  """Stores an array as bytes.

  Args:
    x: finite float32 numbers of any shape; none below 0 for UNSIGNED.
    code: SIGNED or UNSIGNED.

  Returns:
    (codes, absmax_N): uint8 in the shape of x, and float32 of the N blocks,
    the last of which may be shorter. A number in the middle between two
    entries takes the lower one.
  """
  x_NxC = _blocks(x)
  absmax_N = jnp.max(jnp.abs(x_NxC), 1)
  scale_N = jnp.where(absmax_N > 0, absmax_N, 1)
  codes_NxC = _nearest(x_NxC / scale_N[:, None], code)
  codes = codes_NxC.astype(jnp.uint8).reshape(-1)[: x.size]
  return codes.reshape(x.shape), absmax_N


def dequantize(codes, absmax_N, code):
  """The float32 numbers that `quantize` has stored, in the shape of codes."""
  entries = jnp.asarray(code).at[codes].get(mode='promise_in_bounds')
  x_NxC = _blocks(entries) * absmax_N[:, None]
  return x_NxC.reshape(-1)[: codes.size].reshape(codes.shape)


def _nearest(x, code):
  """How many of the middles between entries lie below each number."""
  # jnp.searchsorted with its methods takes 16 to 1052 bytes a number and 2.5
  # to 130 times as long on a CPU.
  middles = jnp.asarray((code[:-1] + code[1:]) / 2)
  below = jnp.where(x > middles[127], 128, 0)
  for half in (64, 32, 16, 8, 4, 2, 1):
    middle = middles.at[below + half - 1].get(mode='promise_in_bounds')
    below = below + half * (x > middle)
  return below


def _blocks(x):
  """Rows of BLOCK numbers; zeros fill the last one."""
  flat = x.reshape(-1)
  return jnp.pad(flat, (0, -x.size % BLOCK)).reshape(-1, BLOCK)
