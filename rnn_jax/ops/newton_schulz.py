"""The Newton-Schulz iteration of Muon: a matrix with singular values near 1.

    X_0 = D / |D|
    X_i = a X_{i-1} + (b A + c A^2) X_{i-1},  A = X_{i-1} X_{i-1}^T,  i = 1 .. n

with (a, b, c) = (3.4445, -4.775, 2.0315): X_n has approximately the singular
vectors of D. `norm` names |D|:

    frobenius  the root of the sum of the squares of all singular values
    spectral   the largest singular value, which takes a decomposition
    schatten   the fourth root of the sum of their fourth powers
    aol        row by row of the shorter side: the root of sum_j |D D^T|_ij

The smaller it is, the nearer to 1 are the singular values of X_0, which are at
most 1 with any of them; fewer steps then do.

Products may have factors in bfloat16, as published: what they round, some
thousandths, is small beside how far from 1 the singular values are left. Sums
are float32.
Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural
networks", 2024; Boissin et al., "Turbo-Muon: Accelerating Orthogonality-Based
Optimization with Pre-Conditioning", 2025, for 'aol'.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.ops import precision

COEFFICIENTS = 3.4445, -4.775, 2.0315
NORMS = 'frobenius', 'spectral', 'schatten', 'aol'
TINY = 1e-30  # a matrix of zeros stays one


def orthogonalized(
  d_RxC: jax.Array, steps: int, norm: str, operands: str
) -> jax.Array:
  """Returns X_n of a matrix, or of each of several.

  Args:
    d_RxC: rows and columns, float32; more axes before them are of several.
    steps: n, 1 or more.
    norm: one of NORMS.
    operands: the format of the products' factors, a key of precision.FORMATS.
  """
  if d_RxC.ndim > 2:
    each = functools.partial(
      orthogonalized, steps=steps, norm=norm, operands=operands
    )
    return jax.vmap(each)(d_RxC)
  if d_RxC.shape[0] > d_RxC.shape[1]:
    return orthogonalized(d_RxC.T, steps, norm, operands).T

  def product(x, y, contracted):
    return precision.dot(x, y, (contracted, ((), ())), operands)

  a, b, c = COEFFICIENTS
  square = product(d_RxC, d_RxC, ((1,), (1,)))
  scale = 1 / jnp.maximum(_norms(d_RxC, square, norm), TINY)
  x, square = scale * d_RxC, scale * square * scale.T
  for step in range(steps):
    if step:
      square = product(x, x, ((1,), (1,)))
    polynomial = b * square + c * product(square, square, ((1,), (0,)))
    x = a * x + product(polynomial, x, ((1,), (0,)))
  return x


def _norms(d_RxC, square, norm):
  """Returns |D| as Rx1, by D D^T where it follows from it."""
  if norm == 'aol':
    return jnp.sqrt(jnp.sum(jnp.abs(square), 1, keepdims=True))
  if norm == 'schatten':
    value = jnp.sqrt(jnp.linalg.norm(square))
  else:
    value = jnp.linalg.norm(d_RxC, 'fro' if norm == 'frobenius' else 2)
  return jnp.full((d_RxC.shape[0], 1), value)
