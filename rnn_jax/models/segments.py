"""A loss over long rows, one segment of time at a time.

Segments are connected only by a recurrent model's state. So the backward pass
needs the activations of one segment at a time: it saves the states between
segments and the outputs of the recurrences, and recomputes the rest. That costs
another forward pass of the matmuls, but not of the recurrences. The gradients
are those of the whole row; nothing is truncated.
Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.cells import base

PyTree = Any
_POLICY = jax.checkpoint_policies.save_only_these_names(base.KEPT)


def add_up(
  run: Callable[..., Any], steps: int, state: PyTree, batch: Any
) -> tuple[PyTree, dict[str, jax.Array]]:
  """Adds up `run` over segments of `steps` steps of the rows.

  Args:
    run: (state, batch, number of the segment) -> (state, dict of sums).
    steps: of a segment; the last may be shorter. 0: the whole row.
    state: before the rows.
    batch: a Batch; its arrays with a time axis are split along it.

  Returns:
    (state after the rows, sums). Only the sum 'objective' has a gradient.
  """
  state, totals = _run_segments(run, steps, state, batch)
  rest = jax.lax.stop_gradient(totals)
  return state, rest | {'objective': totals['objective']}


def _run_segments(run, steps, state, batch):
  length = batch.tokens_BxL.shape[1]
  if not steps or steps >= length:
    return run(state, batch, 0)
  whole = length // steps
  first = _slice(batch, 0, steps)
  like = jax.eval_shape(functools.partial(run, state, first), 0)[1]
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
  run = jax.checkpoint(run, prevent_cse=False, policy=_POLICY)

  def add(carry, n):
    state, total = carry
    state, of_segment = run(state, _slice(batch, n * steps, steps), n)
    return (state, jax.tree.map(jnp.add, total, of_segment)), None

  carry, _ = jax.lax.scan(add, (state, zeros), jnp.arange(whole))
  if rest := length - whole * steps:
    state, of_segment = run(carry[0], _slice(batch, whole * steps, rest), whole)
    carry = state, jax.tree.map(jnp.add, carry[1], of_segment)
  return carry


def _slice(batch, begin, length):
  """Returns `length` steps of the batch from `begin` on, maybe traced."""
  timed = {
    name: jax.lax.dynamic_slice_in_dim(array, begin, length, 1)
    for name, array in batch._asdict().items()
    if name.endswith('_BxL') and array is not None
  }
  return batch._replace(**timed)
