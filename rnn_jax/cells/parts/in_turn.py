"""Several updates of a state in each step, as steps of their own.

A recurrence that has n updates a step runs over n L steps, in any of its forms.

Shapes: what each step has, BxL...; what its n updates have in the last axis,
BxLxHx(nC); the updates one after the other, BxnLxHxC.
"""

import jax
import jax.numpy as jnp


def each(x_BxLxHxC: jax.Array, n: int) -> jax.Array:
  """Returns the n parts of the last axis one step after the other, BxnLxHxC."""
  if n == 1:
    return x_BxLxHxC
  B, L, H, _ = x_BxLxHxC.shape
  x = x_BxLxHxC.reshape(B, L, H, n, -1).swapaxes(2, 3)
  return x.reshape(B, L * n, H, -1)


def together(x_BxNLxHxC: jax.Array, n: int) -> jax.Array:
  """Returns what `each` was given, BxLxHx(nC)."""
  if n == 1:
    return x_BxNLxHxC
  B, _, H, C = x_BxNLxHxC.shape
  x = x_BxNLxHxC.reshape(B, -1, n, H, C).swapaxes(2, 3)
  return x.reshape(B, -1, H, n * C)


def repeat(x_BxL: jax.Array, n: int) -> jax.Array:
  """Returns x of each step as that of its n updates, BxnL..."""
  return x_BxL if n == 1 else jnp.repeat(x_BxL, n, 1)


def only(x_BxL: jax.Array, j: int, n: int) -> jax.Array:
  """Returns BxnL... steps: x as the update j of each step, else zeros."""
  pad = [(0, 0)] * (x_BxL.ndim + 1)
  pad[2] = j, n - 1 - j
  x = jnp.pad(x_BxL[:, :, None], pad)
  return x.reshape(x.shape[0], -1, *x.shape[3:])


def after(x_BxNL: jax.Array, j: int, n: int) -> jax.Array:
  """Returns the update j later of the same step, zeros where it has none."""
  if not j:
    return x_BxNL
  B, NL, *widths = x_BxNL.shape
  x = x_BxNL.reshape(B, -1, n, *widths)
  pad = [(0, 0)] * x.ndim
  pad[2] = max(-j, 0), max(j, 0)
  x = jnp.pad(x, pad)
  x = x[:, :, max(j, 0) : max(j, 0) + n]
  return x.reshape(B, NL, *widths)
