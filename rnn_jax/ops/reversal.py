"""Reading the documents of a row from their last step to their first.

    starts   1 0 0 1 0 -1 0        documents a b c and d e, then padding
    row      a b c d e  - -
    reverse  c b a e d  - -

Each document is reversed in its place, so that `starts` are those of the
reversed row too, and reversing twice gives the row. What follows a mark of
padding is a document of its own: no document reads it first.

Shapes: x BxL..., starts BxL; None: a row is one document.
"""

import jax
import jax.numpy as jnp
from jax import lax


def first_steps(starts_BxL: jax.Array) -> jax.Array:
  """Returns the first step of each step's document, BxL."""
  steps_BxL = _steps(starts_BxL)
  return lax.cummax(jnp.where(starts_BxL != 0, steps_BxL, 0), axis=1)


def last_steps(starts_BxL: jax.Array) -> jax.Array:
  """Returns the last step of each step's document, BxL."""
  L = starts_BxL.shape[1]
  ends_BxL = jnp.pad(starts_BxL[:, 1:] != 0, [(0, 0), (0, 1)])
  steps_BxL = jnp.where(ends_BxL, _steps(starts_BxL), L - 1)
  return lax.cummin(steps_BxL, axis=1, reverse=True)


def reverse(x: jax.Array, starts_BxL: jax.Array | None) -> jax.Array:
  """Returns x, BxL..., with each document's steps in reverse order.

  Args:
    x: BxL....
    starts_BxL: nonzero where a document, or padding, begins; None: no row has
      more than one document, or padding.
  """
  if starts_BxL is None:
    return jnp.flip(x, 1)
  return _permute(x, first_steps(starts_BxL) + last_steps(starts_BxL))


def from_first(x_BxLxD: jax.Array, starts_BxL: jax.Array | None) -> jax.Array:
  """Returns at each step x of its document's first step, BxLxD."""
  if starts_BxL is None:
    return jnp.broadcast_to(x_BxLxD[:, :1], x_BxLxD.shape)
  return _take(x_BxLxD, first_steps(starts_BxL))


def from_last(x_BxLxD: jax.Array, starts_BxL: jax.Array | None) -> jax.Array:
  """Returns at each step x of its document's last step, BxLxD."""
  if starts_BxL is None:
    return jnp.broadcast_to(x_BxLxD[:, -1:], x_BxLxD.shape)
  return _take(x_BxLxD, last_steps(starts_BxL))


@jax.custom_vjp
def _permute(x, ends_BxL):
  return _take(x, ends_BxL - _steps(ends_BxL))


# The permutation is its own inverse: its transpose, which would be a scatter
# for XLA, is the same gather.
_permute.defvjp(
  lambda x, ends_BxL: (_permute(x, ends_BxL), ends_BxL),
  lambda ends_BxL, d: (_permute(d, ends_BxL), None),
)


def _take(x, source_BxL):
  source = source_BxL.reshape(*source_BxL.shape, *[1] * (x.ndim - 2))
  return jnp.take_along_axis(x, source, 1)


def _steps(like_BxL):
  return jnp.broadcast_to(jnp.arange(like_BxL.shape[1])[None], like_BxL.shape)
