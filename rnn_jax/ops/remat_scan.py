"""A scan over time whose backward pass follows a schedule of kept states.

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

Step = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def scan(
  step: Step,
  params: Any,
  state: Any,
  inputs: tuple[Any, Any],
  every: int,
  schedule: remat_schedules.Schedule,
) -> tuple[Any, Any]:
  """`jax.lax.scan` of a step, with the same numbers and gradients.

  Args:
    step: (params, state, x, marks) -> (state, y), all trees.
    params: what every step reads; it has gradients.
    state: before the first step.
    inputs: (x, marks), trees with the time in front; only x has gradients.
    every: steps of a block.
    schedule: of as many blocks as the time holds.

  Returns:
    (state, y), the time in front.

  Raises:
    ValueError: the time is not `every` times the schedule's blocks.
  """
  blocks = len(schedule.loads)
  (length,) = {leaf.shape[0] for leaf in jax.tree.leaves(inputs)}
  if length != blocks * every:
    raise ValueError(
      f'inputs have {length} steps: the schedule takes {blocks} blocks of '
      f'{every}'
    )
  x, marks = _map(lambda u: u.reshape(blocks, every, *u.shape[1:]), inputs)
  state, y = _blocks(step, schedule)(params, state, x, marks)
  return state, _map(lambda u: u.reshape(length, *u.shape[2:]), y)


def _blocks(step, schedule):
  """The scan over blocks, with its own backward pass."""

  def block(params, state, x, marks):
    return jax.lax.scan(
      lambda state, inputs: step(params, state, *inputs), state, (x, marks)
    )

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
