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

def _run(plan, state, q, k, v, loga):
  return _forward(plan, state, q, k, v, loga)[0]

def _forward(plan, state, q, k, v, loga):
  shape = state.shape
  read, write, total, scores = kernels.prepare(plan, q, k, loga)
  v_parts = _operand(plan, v)
  kept, last = kernels.states(plan, state.reshape(-1, *shape[2:]), write, v_parts, total)
  y = kernels.outputs(plan, read, kept, scores, v_parts)
  return (last.reshape(shape), y), (q, k, v, loga, kept)
