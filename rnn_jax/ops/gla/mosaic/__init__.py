"""The gated linear recurrence on Hopper GPUs: Pallas kernels by Mosaic."""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.ops.gla.mosaic import kernels
from rnn_jax.ops.gla.mosaic import tiles

TILE = tiles.TILE

def run(state, q, k, v, loga, operands='float32', interpreted=False):
  (B, L, H, K), P = q.shape, v.shape[-1]
  loga = jnp.broadcast_to(loga, k.shape)
  rows, keys, values = -L % TILE, -K % TILE, -P % TILE
  q, k, loga = (_pad(x, rows, keys) for x in (q, k, loga))
  v = _pad(v, rows, values)
  state = jnp.pad(state, [(0, 0), (0, 0), (0, keys), (0, values)])
  plan = tiles.Plan(operands, B, L+rows, H, K+keys, P+values, interpreted)
  q, k, v = (x.astype(plan.stored) for x in (q, k, v))
  state, y = _run(plan, state, q, k, v, loga)
  return state[:, :, :K, :P], y[:, :L, :, :P]

def _pad(x, steps, columns):
  return jnp.pad(x, [(0, 0), (0, steps), (0, 0), (0, columns)])

def _operand(plan, x):
  return jnp.concatenate(tiles.split(x.astype(jnp.float32), plan.parts))

@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, q, k, v, loga):
  return _forward(plan, state, q, k, v, loga)[0]


def _forward(plan, state, q, k, v, loga):
  read, write, total, scores = kernels.prepare(plan, q, k, loga)
  v_parts = _operand(plan, v)
  states, last = kernels.states(plan, _rows(state), write, v_parts, total)
  y = kernels.outputs(plan, read, states, scores, v_parts)
  # The backward pass recomputes read, write and scores, which is cheap beside
  # storing three arrays of q's size. Recomputing the states would be slow.
  return (last.reshape(state.shape), y), (q, k, v, loga, states)


def _backward(plan, residuals, cotangents):
  # Without a barrier, XLA merges the recomputation with the forward pass and
  # stores the results after all.
  q, k, v, loga, states = jax.lax.optimization_barrier(residuals)
  d_last, dy = cotangents
  read, write, total, scores = kernels.prepare(plan, q, k, loga)
  v_parts, dy_parts = _operand(plan, v), _operand(plan, dy)
  d_states, d_state = kernels.states(
    plan, _rows(d_last), read, dy_parts, total, reverse=True
  )
  dv = kernels.outputs(plan, write, d_states, scores, dy_parts, reverse=True)
  met = kernels.meet(plan, dy_parts, v_parts, states, d_states)
  dq, dk, d_loga = kernels.gradients(
    plan, q, k, loga, dy_parts, v_parts, *met
  )
  return d_state.reshape(d_last.shape), dq, dk, dv, d_loga


_run.defvjp(_forward, _backward)


def _rows(state):
  return state.reshape(-1, *state.shape[2:])
