"""The position of each step in its document.

    p_t = 0 where a document begins, else p_{t-1} + 1

The state is p of the next step, so that a document may be split over calls.
"""

import jax
import jax.numpy as jnp
from jax import lax


def count(
  state_B: jax.Array, length: int, starts_BxL: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Returns (state_B, position_BxL) of the next `length` steps, int32.

  Args:
    state_B: the position of the first step.
    length: L, 1 or more.
    starts_BxL: nonzero where a document begins.
  """
  steps = jnp.arange(length, dtype=jnp.int32)[None]
  position_BxL = state_B[:, None] + steps
  if starts_BxL is not None:
    begin = lax.cummax(jnp.where(starts_BxL != 0, steps, -1), axis=1)
    position_BxL = jnp.where(begin < 0, position_BxL, steps - begin)
  return position_BxL[:, -1] + 1, position_BxL
