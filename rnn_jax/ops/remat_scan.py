"""A scan over blocks of time, its backward pass by a schedule of kept states.

The program does not grow with the row: the schedule (remat_schedules) is data,
and one loop of the backward pass goes through it. What is held is the inputs,
the kept states, and what a single block's reversal needs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import remat_schedules

Block = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def scan(
  block: Block,
  params: Any,
  state: Any,
  inputs: tuple[Any, Any],
  schedule: remat_schedules.Schedule,
) -> tuple[Any, Any]:
  """`jax.lax.scan` over blocks of time, with the same numbers and gradients.

  Args:
    block: (params, state, x, marks) -> (state, y), all trees: one block.
    params: what every block reads; it has gradients.
    state: before the first block.
    inputs: (x, marks), trees with the blocks in front; only x has gradients.
    schedule: of as many blocks.

  Returns:
    (state, y), the blocks in front.

  Raises:
    ValueError: the inputs have not the schedule's number of blocks.
  """
  (blocks,) = {leaf.shape[0] for leaf in jax.tree.leaves(inputs)}
  if blocks != len(schedule.loads):
    raise ValueError(
      f'inputs have {blocks} blocks: the schedule takes {len(schedule.loads)}'
    )
  return _scheduled(block, schedule)(params, state, *inputs)


def _scheduled(block, schedule):
  """The scan, with its own backward pass."""

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
  """Gradients of (params, state, x)."""
  params, kept, x, marks = residuals
  advanced = np.array(schedule.advanced or [0], np.int32)
  stored = np.array(schedule.stored or [0], np.int32)

  def reverse(carry, move):
    kept, dstate, dparams = carry
    load, bounds, number, dy = move

    def advance(i, carry):
      state, kept = carry
      at = jnp.asarray(advanced)[i]
      state, _ = block(params, state, _take(x, at), _take(marks, at))
      return state, _put(kept, jnp.asarray(stored)[i], state)

    start = _take(kept, load), kept
    state, kept = jax.lax.fori_loop(bounds[0], bounds[1], advance, start)
    _, pull = jax.vjp(
      lambda *given: block(*given, _take(marks, number)),
      params,
      state,
      _take(x, number),
    )
    more, dstate, dx = pull((dstate, dy))
    return (kept, dstate, _map(jnp.add, dparams, more)), dx

  dstate, dy = cotangents
  offsets = np.array(schedule.offsets, np.int32)
  moves = (  # in the order of the blocks; the scan takes the last one first
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
