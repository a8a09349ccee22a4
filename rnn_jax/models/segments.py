"""A loss over long rows, a segment of time at a time.

A recurrent model's state is all that a segment hands to the next. So the
backward pass need hold one segment's activations: it keeps the states between
segments and the outputs of the recurrences, and computes the rest again, which
costs one more pass of the matmuls over time but not of the recurrences. The
gradients are those of the whole row; nothing is truncated.
Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.cells import base

_KEEP = jax.checkpoint_policies.save_only_these_names(base.KEPT)


def sums(run, steps, state, batch):
  """Adds up `run` over segments of `steps` steps of the rows.

  Args:
    run: (state, batch, number of the segment) -> (state, dict of sums).
    steps: of a segment; the last may be shorter.
    state: before the rows.
    batch: a Batch; all that has a time axis is cut along it.

  Returns:
    (state, sums) behind the rows. The sum 'objective' alone has a gradient.
  """
  state, found = _add_up(run, steps, state, batch)
  rest = jax.lax.stop_gradient(found)
  return state, rest | {'objective': found['objective']}


def _add_up(run, steps, state, batch):
  length = batch.tokens_BxL.shape[1]
  if not steps or steps >= length:
    return run(state, batch, 0)
  whole = length // steps
  first = _cut(batch, 0, steps)
  like = jax.eval_shape(functools.partial(run, state, first), 0)[1]
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
  run = jax.checkpoint(run, prevent_cse=False, policy=_KEEP)

  def add(carry, n):
    state, total = carry
    state, found = run(state, _cut(batch, n * steps, steps), n)
    return (state, jax.tree.map(jnp.add, total, found)), None

  carry, _ = jax.lax.scan(add, (state, zeros), jnp.arange(whole))
  if rest := length - whole * steps:
    state, found = run(carry[0], _cut(batch, whole * steps, rest), whole)
    carry = state, jax.tree.map(jnp.add, carry[1], found)
  return carry


def _cut(batch, begin, length):
  """The batch with `length` steps from `begin` on, which may be traced."""
  timed = {
    name: jax.lax.dynamic_slice_in_dim(array, begin, length, 1)
    for name, array in batch._asdict().items()
    if name.endswith('_BxL') and array is not None
  }
  return batch._replace(**timed)
