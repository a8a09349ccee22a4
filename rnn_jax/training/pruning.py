"""Pruning by magnitude: the smallest numbers of matrices become 0, and stay 0.

    s_t = s (1 - (1 - (t - t_0) / (t_1 - t_0))^3)    from step t_0 to t_1

is the share of zeros at step t, raised every so many steps. A matrix is a
'kernel' of one layer; with scope 'layer' each has the same share of zeros, with
'global' the smallest numbers of all of them go. What is 0 is never changed
again, so that the parameters are the mask, and a run that begins with a pruned
model keeps its zeros.
Source: Zhu and Gupta, "To prune, or not to prune: exploring the efficacy of
pruning for model compression", 2017.
"""

from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.config import compression as config_compression

PyTree = Any
PRUNED = 'kernel'
STACKED = 'blocks'  # under it, the first axis counts layers


def sparsity_at(step: jax.Array, options: config_compression.Pruning):
  """Returns s_t, a scalar; s behind the last step of the schedule."""
  length = options.end_step - options.begin_step
  share = jnp.clip((step - options.begin_step) / length, 0.0, 1.0)
  return options.sparsity * (1 - (1 - share) ** 3)


def update(
  step: jax.Array,
  old: PyTree,
  new: PyTree,
  options: config_compression.Pruning,
) -> PyTree:
  """Returns a step's new parameters as its place in the schedule wants them.

  Args:
    step: how many there were before, a scalar.
    old: the parameters before it, whose zeros stay.
    new: those that the optimizer makes of them.
    options: section `pruning` of a config.
  """
  since = step - options.begin_step
  due = (since % options.every == 0) | (step == options.end_step)
  turn = jnp.where(since < 0, 0, jnp.where(due, 2, 1))
  share = sparsity_at(step, options)
  return jax.lax.switch(
    turn,
    (
      lambda: new,
      lambda: _keep_zeros(old, new),
      lambda: prune(_keep_zeros(old, new), share, options.scope),
    ),
  )


def prune(params: PyTree, sparsity, scope: str) -> PyTree:
  """Returns parameters with that share of their matrices' numbers at 0.

  Args:
    params: a tree of dicts.
    sparsity: a number or a scalar in [0, 1]; shares are rounded down.
    scope: 'layer' or 'global'.
  """
  if scope == 'global':
    sizes = [jnp.abs(x).ravel() for _, x in _pruned(params)]
    edge = _edge(jnp.concatenate(sizes)[None], sparsity)[0]
    return _map(lambda path, x: jnp.where(jnp.abs(x) > edge, x, 0), params)

  def prune_one(path, x):
    rows = x.shape[0] if _is_stacked(path) else 1
    edge = _edge(jnp.abs(x).reshape(rows, -1), sparsity)
    edge = edge.reshape(-1, *[1] * (x.ndim - 1)) if rows > 1 else edge[0]
    return jnp.where(jnp.abs(x) > edge, x, 0)

  return _map(prune_one, params)


def sparsity(params: PyTree) -> float:
  """Returns the share of zeros in the matrices of a model."""
  matrices = [x for _, x in _pruned(params)]
  zeros = sum(int((x == 0).sum()) for x in matrices)
  return zeros / max(sum(x.size for x in matrices), 1)


def _edge(size_NxM, sparsity):
  """What the largest number to go measures in each row; -1: none goes."""
  count = size_NxM.shape[1]
  gone = jnp.floor(jnp.float32(sparsity) * count + 1e-3).astype(jnp.int32)
  ordered = jnp.sort(size_NxM, 1)
  last = jnp.take(ordered, jnp.maximum(gone - 1, 0), 1)
  return jnp.where(gone > 0, last, -1.0)


def _keep_zeros(old, new):
  return jax.tree.map_with_path(
    lambda path, a, b: jnp.where(a != 0, b, 0) if _is_pruned(path, a) else b,
    old,
    new,
  )


def _map(function, params):
  return jax.tree.map_with_path(
    lambda path, x: function(path, x) if _is_pruned(path, x) else x, params
  )


def _pruned(params):
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return [(path, x) for path, x in leaves if _is_pruned(path, x)]


def _is_pruned(path, x):
  return path[-1].key == PRUNED and x.ndim >= 2


def _is_stacked(path):
  return any(key.key == STACKED for key in path)
