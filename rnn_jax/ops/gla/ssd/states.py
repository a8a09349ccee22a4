"""Kernels that carry the state of a head through its chunks, in order.

The equations are in the package's docstring.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops.gla.pallas import tiles as gla_tiles
from rnn_jax.ops.gla.ssd import tiles

WARPS = 8  # of kernels that hold a state and scores


def _ssd_outputs(*refs, plan, reverse):
  state_ref, q_ref, k_ref, v_ref, loga_ref, rate_ref, skip_ref, *refs = refs
  y_ref, *states_ref, last_ref = refs
  dot = functools.partial(gla_tiles.dot, plan)
  skip = skip_ref[0]

  def advance(n, state):
    n = plan.N - 1 - n if reverse else n
    here = tiles.steps(plan, n)
    q, k, v = q_ref[here, :], k_ref[here, :], v_ref[here, :]
    loga, rate = loga_ref[here], rate_ref[here]
    between = tiles.between(plan, loga) * rate[None]
    since, until, total = tiles.to_ends(plan, loga)
    scores = (dot(q, k, (1, 1)) * between).astype(plan.stored)
    y = dot(scores, v, (0 if reverse else 1, 0)) + skip * v
    of_q, of_k = (q, since), (k, until * rate)
    (reader, seen), (writer, kept) = (of_k, of_q) if reverse else (of_q, of_k)
    y += seen[:, None] * dot(reader, state)
    y_ref[here, :] = y.astype(y_ref.dtype)
    for ref in states_ref:
      ref[n, :, :] = state.astype(ref.dtype)
    return total * state + dot(writer, kept[:, None] * v, (0, 0))

  last_ref[...] = jax.lax.fori_loop(0, plan.N, advance, state_ref[...])


def outputs(
  plan: tiles.Plan,
  state: jax.Array,
  inputs: tiles.Inputs,
  reverse: bool = False,
) -> tuple[jax.Array, ...]:
  """Returns (y BxLxHxP, the last state BxHxKxP).

  In reverse, v and y are their gradients, exchanged: it returns (the gradient
  of v, that of the state after each chunk BxHxNxKxP, that of the first one).

  Args:
    plan: the shapes.
    state: BxHxKxP, before the first chunk of the run.
    inputs: the Inputs; v is the gradient of y if `reverse`.
    reverse: whether to run from the last chunk to the first.
  """
  B, L, H, P = plan.B, plan.L, plan.H, plan.P
  tile, of_keys, rows, of_steps, every = _blocks(plan)
  y = (B, L, H, P), plan.stored, *rows
  return gla_tiles.call(
    plan,
    functools.partial(_ssd_outputs, reverse=reverse),
    {'p': P // plan.columns},
    [
      (state, *tile),
      (inputs.q, *of_keys),
      (inputs.k, *of_keys),
      (inputs.v, *rows),
      (inputs.loga, *of_steps),
      (inputs.rate, *of_steps),
      (inputs.skip, (1,), 'h'),
    ],
    [y, *[every] * reverse, (state.shape, jnp.float32, *tile)],
    warps=WARPS,
    stages=2,
    suffix='_reverse' if reverse else '',
  )


def _ssd_states(state_ref, k_ref, v_ref, loga_ref, rate_ref, *refs, plan):
  states_ref, last_ref, logs_ref, rates_ref = refs

  def advance(n, state):
    states_ref[n, :, :] = state.astype(states_ref.dtype)
    here = tiles.steps(plan, n)
    loga, rate = loga_ref[here], rate_ref[here]
    logs_ref[here], rates_ref[here] = loga, rate
    _, until, total = tiles.to_ends(plan, loga)
    rows = v_ref[here, :] * (until * rate)[:, None]
    return total * state + gla_tiles.dot(plan, k_ref[here, :], rows, (0, 0))

  last_ref[...] = jax.lax.fori_loop(0, plan.N, advance, state_ref[...])


def states(
  plan: tiles.Plan, state: jax.Array, inputs: tiles.Inputs
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  """Returns the state before each chunk, BxHxNxKxP, and (loga, rate) BxHxL.

  Arguments are as of `outputs`. A kernel transposes the two, since XLA would
  transpose all that they are computed with.
  """
  tile, of_keys, rows, of_steps, every = _blocks(plan)
  by_head = (None, None, plan.L), 'b h 0'
  numbers = (plan.B, plan.H, plan.L), jnp.float32, *by_head
  before, _, loga, rate = gla_tiles.call(
    plan,
    _ssd_states,
    {'p': plan.P // plan.columns},
    [
      (state, *tile),
      (inputs.k, *of_keys),
      (inputs.v, *rows),
      (inputs.loga, *of_steps),
      (inputs.rate, *of_steps),
    ],
    [every, (state.shape, jnp.float32, *tile), numbers, numbers],
    warps=4,
    stages=2,
  )
  return before, (loga, rate)


def _blocks(plan: tiles.Plan) -> tuple[Any, ...]:
  """Returns the blocks of states, keys, rows of values, numbers of a step.

  And as what the states of all chunks are written: matmuls read these, so they
  are in their format; the sum is float32.
  """
  L, K, N, high = plan.L, plan.K, plan.N, plan.columns
  every = (None, None, N, K, high), 'b h 0 0 p'
  return (
    ((None, None, K, high), 'b h 0 p'),
    ((None, L, None, K), 'b 0 g 0'),
    ((None, L, None, high), 'b 0 h p'),
    ((None, L, None), 'b 0 h'),
    ((plan.B, plan.H, N, K, plan.P), plan.stored, *every),
  )
