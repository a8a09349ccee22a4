"""The gated linear recurrence with one decay a head, on a GPU.

    S_t = a_t S_{t-1} + r_t k_t v_t^T        y_t = S_t^T q_t + d v_t

Shapes: q, k BxLxGxK of G groups of heads, which share them; v, y BxLxHxP;
log a_t <= 0, -inf allowed, BxLxHx1; the rate r BxLxH and the skip d H. With
d(s, t] the product of the decays after s up to t, 0 and C the ends of a chunk
of C steps, and S its first state:

    between_ij = d(j, i], j <= i    since_i = d(0, i]    until_j = d(j, C]
    y = since q S + (q k^T * between) r v + d v
    S' = d(0, C] S + k^T (until r v)

A decay is one number, so it multiplies scores, and rows of values, never keys:
one kernel, `outputs`, carries the state of a head through its chunks in
registers, and neither decayed keys nor states are written to memory. The
backward pass keeps only the inputs. `states` stores the states; `outputs`, in
reverse, stores their gradients D and computes that of v, as

    dv = r (until k D + (q k^T * between)^T dy) + d dy
    D' = d(0, C] D + q^T (since dy)

`gradients`, parallel over chunks, has one program for many heads of a group and
sums their gradients of q and k.

Nothing is divided by a decay, and no exponent is positive: a decay between two
steps is the exponential of the sum of logs over just the steps between, not of
a difference of sums, which has rounding errors where a gate is 0.

Kernels are Pallas's, lowered through Triton.
Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient
Algorithms Through Structured State Space Duality", 2024.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.ops.gla.pallas import tiles as gla_tiles
from rnn_jax.ops.gla.ssd import gradients as kernel_gradients
from rnn_jax.ops.gla.ssd import states as kernel_states
from rnn_jax.ops.gla.ssd import tiles

CHUNK = 64
SHORT = 32  # of wide keys and of operands with more bits, which fill registers


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  loga: jax.Array,
  rate: jax.Array | None = None,
  skip: jax.Array | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs the recurrence over time.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxGxK; G divides H.
    k: BxLxGxK.
    v: BxLxHxP.
    loga: BxLxHx1.
    rate: BxLxH; None: 1.
    skip: H; None: 0.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.
      With 'bfloat16', q, k, v are read and y is written in it.

  Returns:
    (state BxHxKxP in float32, y BxLxHxP in float32 or bfloat16).

  Raises:
    NotImplementedError: the device isn't a GPU, or K or P is above
      gla_pallas.WIDEST.
  """
  (B, L, G, K), (H, P) = q.shape, v.shape[2:]
  gla_pallas.check_device()
  gla_pallas.check_widths(K, P)
  short = operands != 'bfloat16' or K > 2 * tiles.HIGH
  chunk = min(SHORT if short else CHUNK, _padded(L))
  to_K, to_P = _padded(K) - K, _padded(P) - P
  plan = tiles.Plan(
    operands=operands,
    interpret=gla_pallas.interpreted(),
    B=B,
    L=L + -L % chunk,
    H=H,
    G=G,
    K=K + to_K,
    P=P + to_P,
    chunk=chunk,
  )

  def pad(x, columns):
    """Appends zeros, which write nothing, forget nothing and aren't read."""
    return jnp.pad(x, [(0, 0), (0, -L % chunk), (0, 0), (0, columns)])

  q, k, v = (
    pad(x.astype(plan.stored), columns)
    for x, columns in ((q, to_K), (k, to_K), (v, to_P))
  )
  exact = jnp.float32
  if rate is None:
    rate = jnp.ones((B, L, H), exact)
  if skip is None:
    skip = jnp.zeros((H,), exact)
  # Not transposed, or XLA would transpose all that these are computed with.
  loga, rate = (
    pad(x.astype(exact), 0)[..., 0] for x in (loga, rate[..., None])
  )
  inputs = tiles.Inputs(q, k, v, loga, rate, skip.astype(exact))
  pads = [(0, 0), (0, 0), (0, to_K), (0, to_P)]
  state, y = _run(plan, jnp.pad(state.astype(exact), pads), inputs)
  return state[:, :, :K, :P], y[:, :L, :, :P]


def _padded(n):
  return max(gla_tiles.SUB, pl.next_power_of_2(n))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, inputs):
  y, last = kernel_states.outputs(plan, state, inputs)
  return last, y


def _forward(plan, state, inputs):
  return _run(plan, state, inputs), (state, inputs)


def _backward(plan, residuals, cotangents):
  (state, inputs), (d_last, dy) = residuals, cotangents
  states, logs = kernel_states.states(plan, state, inputs)
  dv, d_states, d_state = kernel_states.outputs(
    plan, d_last, inputs._replace(v=dy), reverse=True
  )
  return d_state, kernel_gradients.gradients(
    plan, inputs, dy, dv, logs, states, d_states
  )


_run.defvjp(_forward, _backward)
