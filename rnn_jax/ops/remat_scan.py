"""A scan over blocks of time whose backward pass follows a remat schedule.

The program doesn't grow with the row: the schedule (remat_schedules) is data,
and the backward pass is one loop over it. Memory holds the inputs, the kept
states, and the residuals of one block.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import remat_schedules

PyTree = Any
Block = Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]


def scan(
  block: Block,
  params: PyTree,
  state: PyTree,
  inputs: tuple[PyTree, PyTree],
  schedule: remat_schedules.Schedule,
) -> tuple[PyTree, PyTree]:
  """Returns `jax.lax.scan` over blocks of time, gradients included.

  Args:
    block: (params, state, x, marks) -> (state, y), one block of steps.
    params: read by every block; has gradients.
    state: before the first block.
    inputs: (x, marks), trees with the blocks on axis 0; only x has gradients.
    schedule: of the same number of blocks.

  Returns:
    (state, y), y with the blocks on axis 0.

  Raises:
    ValueError: the number of blocks differs from the schedule's.
  """
  (blocks,) = {leaf.shape[0] for leaf in jax.tree.leaves(inputs)}
  if blocks != len(schedule.loads):
    raise ValueError(
      f'inputs have {blocks} blocks, the schedule {len(schedule.loads)}'
    )
  return _scheduled(block, schedule)(params, state, *inputs)


def _scheduled(block, schedule):
  """Returns the scan with its own backward pass."""

  @jax.custom_vjp
  def run(params, state, x, marks):
    return jax.lax.scan(
      lambda state, inputs: block(params, state, *inputs), state, (x, marks)
    )

  def forward(params, state, x, marks):
    def advance(carry, inputs):
      state, kept = carry
      state, y = block(params, state, *inputs[1:])
      return (state, _put(kept, inputs[0], state)), y

    empty = _map(
      lambda u: jnp.zeros((schedule.kept + 1, *u.shape), u.dtype), state
    )
    swept = np.array(schedule.swept, np.int32)
    carry = state, _put(empty, 0, state)
    (state, kept), y = jax.lax.scan(advance, carry, (swept, x, marks))
    return (state, y), (params, kept, x, marks)

  def backward(residuals, cotangents):
    return *_backward(block, schedule, residuals, cotangents), None

  run.defvjp(forward, backward)
  return run


def _backward(block, schedule, residuals, cotangents):
  """Returns the gradients of (params, state, x)."""
  params, kept, x, marks = residuals
  advanced = np.array(schedule.advanced or [0], np.int32)
  stored = np.array(schedule.stored or [0], np.int32)

  def reverse(carry, move):
    kept, dstate, dparams = carry
    load, bounds, number, dy = move

    def recompute(i, carry):
      state, kept = carry
      at = jnp.asarray(advanced)[i]
      state, _ = block(params, state, _take(x, at), _take(marks, at))
      return state, _put(kept, jnp.asarray(stored)[i], state)

    start = _take(kept, load), kept
    state, kept = jax.lax.fori_loop(bounds[0], bounds[1], recompute, start)
    _, pull = jax.vjp(
      lambda *inputs: block(*inputs, _take(marks, number)),
      params,
      state,
      _take(x, number),
    )
    of_block, dstate, dx = pull((dstate, dy))
    return (kept, dstate, _map(jnp.add, dparams, of_block)), dx

  dstate, dy = cotangents
  offsets = np.array(schedule.offsets, np.int32)
  moves = (  # in the order of the blocks; the scan runs in reverse
    np.array(schedule.loads, np.int32)[::-1],
    np.stack([offsets[:-1], offsets[1:]], 1)[::-1],
    np.arange(len(schedule.loads), dtype=np.int32),
    dy,
  )
  carry = kept, dstate, _map(jnp.zeros_like, params)
  (_, dstate, dparams), dx = jax.lax.scan(reverse, carry, moves, reverse=True)
  return dparams, dstate, dx


def _put(slots, at, tree):
  return _map(lambda all, one: all.at[at].set(one), slots, tree)


def _take(slots, at):
  return _map(lambda all: all[at], slots)


def _map(function, *trees):
  return jax.tree.map(function, *trees)
