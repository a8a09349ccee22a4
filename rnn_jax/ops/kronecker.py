"""Kronecker factors of the Fisher matrix of a matmul's weights.

For y_n = W^T x_n (+ b), n the rows of a batch whose loss is the sum of theirs,

    A = sum_n x_n x_n^T      G = sum_n dy_n dy_n^T      dy_n = d loss / d y_n

over the rows with dy_n != 0: no loss depends on the others, which are padding.
With both divided by the number of rows, A (x) G approximates the Fisher matrix
of W, whose gradient is sum_n x_n dy_n^T. Rows are all steps of all documents,
as if each were an example ('expand'). The labels are those of the data, not
samples of the model: it is the empirical Fisher matrix.

A diagonal factor is stored as its diagonal, n numbers instead of n x n.
Sources: Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored
Approximate Curvature", 2015; Eschenhagen et al., "Kronecker-Factored
Approximate Curvature for Modern Neural Network Architectures", 2023.
"""

import jax
import jax.numpy as jnp

from rnn_jax.ops import precision

TINY = 1e-30  # least mean eigenvalue of a factor


@jax.custom_vjp
def tagged(
  y: jax.Array, x: jax.Array, inputs: jax.Array, outputs: jax.Array
) -> jax.Array:
  """Returns y, the product of x and a kernel DxF; its gradient is unchanged.

  The gradients with respect to `inputs` and `outputs` are A and G, in float32.

  Args:
    y: ...xF.
    x: ...xD, the inputs of the matmul.
    inputs: any values: DxD for A, D for its diagonal.
    outputs: any values: FxF for G, F for its diagonal.
  """
  del x, inputs, outputs
  return y


def _forward(y, x, inputs, outputs):
  return y, (x, inputs, outputs)


def _backward(residuals, dy):
  x, inputs, outputs = residuals
  rows = jnp.any(dy != 0, -1, keepdims=True)
  factors = _sum(jnp.where(rows, x, 0), inputs), _sum(dy, outputs)
  return dy, jnp.zeros_like(x), *factors


tagged.defvjp(_forward, _backward)


def _sum(x, like):
  """Returns the sum of x x^T over all rows, or its diagonal."""
  x = x.reshape(-1, x.shape[-1])
  if like.ndim == 1:
    return jnp.sum(jnp.square(x.astype(jnp.float32)), 0)
  return precision.dot(x, x, (((0,), (0,)), ((), ())), 'float32')


def inverse(factor: jax.Array, damping: float) -> jax.Array:
  """Returns (factor / a + sqrt(damping) I)^-1, a the mean of its eigenvalues.

  Args:
    factor: symmetric and positive semidefinite, nxn, or n for a diagonal.
    damping: above 0, that of the product of two such inverses.
  """
  diagonal = factor if factor.ndim == 1 else jnp.diagonal(factor)
  scale = 1 / jnp.maximum(jnp.mean(diagonal), TINY)
  shift = damping**0.5
  if factor.ndim == 1:
    return 1 / (scale * factor + shift)
  unit = jnp.eye(factor.shape[0], dtype=factor.dtype)
  root = jnp.linalg.cholesky(scale * factor + shift * unit)
  return jax.scipy.linalg.cho_solve((root, True), unit)


def precondition(
  gradient: jax.Array, inputs: jax.Array, outputs: jax.Array
) -> jax.Array:
  """Returns A^-1 gradient G^-1, DxF, given the two inverses."""
  if inputs.ndim == 1:
    gradient = inputs[:, None] * gradient
  else:
    gradient = inputs @ gradient
  return gradient * outputs[None] if outputs.ndim == 1 else gradient @ outputs
