"""The gated recurrence with R inputs and R outputs in each step: MIMO.

    S_t = a_t S_{t-1} + sum_r k_{t,r} v_{t,r}^T
    o_{t,r} = S_t^T q_{t,r}                                  for r = 1, ..., R

A step adds a product of two matrices to a state of the size that one input has,
and multiplies the state by a matrix: R times the arithmetic for each number of
the state that is read and written. With R = 1 it is the recurrence of ops/gla.

It runs as that recurrence over R L steps, in any of its forms. The first of R
decays; read r, after input r, lacks the later ones, which are added:

    o_{t,r} = S_{t,r}^T q_{t,r} + sum_{s>r} (k_{t,s} . q_{t,r}) v_{t,s}

Shapes: q, k BxRLxHxK and v, o BxRLxHxP, the R of each step one after the other
(parts/in_turn); log a BxLxHx1; the state BxHxKxP.
Source: Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space
Principles", 2026.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from rnn_jax.cells.parts import in_turn
from rnn_jax.cells.parts import matrix

# (state, Channels of single inputs, starts_BxL, impl) -> (state, o_BxLxHxP)
Run = Callable[..., tuple[jax.Array, jax.Array]]
Scores = dict[int, jax.Array]  # {s - r: BxRLxH}

_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def recurrence(
  run: Run,
  R: int,
  state_BxHxKxP: jax.Array,
  channels: matrix.Channels,
  starts_BxL: jax.Array | None,
  impl: str,
) -> tuple[jax.Array, jax.Array]:
  """Returns (state_BxHxKxP, o_BxRLxHxP).

  Args:
    run: the recurrence of single inputs.
    R: the inputs of a step.
    state_BxHxKxP: before the first step.
    channels: q, k and v of RL inputs, log a of L steps, of each head.
    starts_BxL: nonzero where a document begins, or None.
    impl: of the recurrence.
  """
  q, k, v, loga = channels[:4]
  if R == 1:
    return run(state_BxHxKxP, channels, starts_BxL, impl)
  if impl == 'step':
    return _step(state_BxHxKxP, channels)
  one = channels._replace(loga_BxLxHxK=in_turn.only(loga, 0, R))
  starts = None if starts_BxL is None else in_turn.only(starts_BxL, 0, R)
  state, o = run(state_BxHxKxP, one, starts, impl)
  later = read(scores(q, k, R, range(1, R)), v, R)
  return state, o + later.astype(o.dtype)


def scores(
  q_BxRLxHxK: jax.Array,
  k_BxRLxHxK: jax.Array,
  R: int,
  offsets: Iterable[int],
  weight_BxRLxH: jax.Array | float = 1.0,
) -> Scores:
  """Returns w_r k_s . q_r of the inputs of a step, by s - r.

  Args:
    q_BxRLxHxK: the queries.
    k_BxRLxHxK: the keys.
    R: the inputs of a step.
    offsets: the s - r.
    weight_BxRLxH: w.
  """
  made = {}
  for j in offsets:
    product = in_turn.after(k_BxRLxHxK, j, R) * q_BxRLxHxK
    made[j] = weight_BxRLxH * jnp.sum(product, -1, dtype=jnp.float32)
  return made


def read(scores: Scores, v_BxRLxHxP: jax.Array, R: int) -> jax.Array:
  """Returns sum_s scores_{s-r} v_s of the inputs of each step, BxRLxHxP."""
  made = [
    score[..., None] * in_turn.after(v_BxRLxHxP, j, R)
    for j, score in scores.items()
  ]
  return sum(made[1:], made[0])


def _step(state, channels):
  """One step is two products for each head."""
  q, k, v, loga = (x.astype(jnp.float32) for x in channels[:4])
  new = jnp.exp(loga[:, 0])[..., None] * state.astype(jnp.float32)
  new = new + _einsum('brhk,brhp->bhkp', k, v)
  o = _einsum('brhk,bhkp->brhp', q, new)
  return new.astype(state.dtype), o.astype(channels.v_BxLxHxP.dtype)
