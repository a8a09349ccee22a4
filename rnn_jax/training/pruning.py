"""Pruning by magnitude: the smallest numbers of matrices become and stay 0.

    s_t = s (1 - (1 - (t - t_0) / (t_1 - t_0))^3)    from step t_0 to t_1

is the sparsity, the fraction of zeros, at step t; it is raised every
`pruning.every` steps. A matrix is a 'kernel' of one layer; with scope 'layer'
all have the same sparsity, with 'global' the smallest numbers of all matrices
become 0. Zeros never change again: the parameters are the mask, and a run that
starts from a pruned model keeps its zeros.
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


def sparsity_at(
  step: jax.Array, options: config_compression.Pruning
) -> jax.Array:
  """Returns s_t, a scalar; s after the last step of the schedule."""
  length = options.end_step - options.begin_step
  fraction = jnp.clip((step - options.begin_step) / length, 0.0, 1.0)
  return options.sparsity * (1 - (1 - fraction) ** 3)


def update(
  step: jax.Array,
  old: PyTree,
  new: PyTree,
  options: config_compression.Pruning,
) -> PyTree:
  """Returns a step's new parameters, pruned if the schedule says so.

  Args:
    step: the number of steps before this one, a scalar.
    old: the parameters before it, whose zeros stay.
    new: those after the optimizer's update.
    options: section `pruning` of a config.
  """
  since = step - options.begin_step
  due = (since % options.every == 0) | (step == options.end_step)
  branch = jnp.where(since < 0, 0, jnp.where(due, 2, 1))
  target = sparsity_at(step, options)
  return jax.lax.switch(
    branch,
    (
      lambda: new,
      lambda: _keep_zeros(old, new),
      lambda: prune(_keep_zeros(old, new), target, options.scope),
    ),
  )


def prune(params: PyTree, sparsity: float | jax.Array, scope: str) -> PyTree:
  """Returns parameters whose matrices have the given sparsity.

  Args:
    params: a tree of dicts.
    sparsity: a scalar in [0, 1]; numbers of zeros are rounded down.
    scope: 'layer' or 'global'.
  """
  if scope == 'global':
    sizes = [jnp.abs(x).ravel() for _, x in _pruned(params)]
    threshold = _threshold(jnp.concatenate(sizes)[None], sparsity)[0]
    return _map(lambda path, x: jnp.where(jnp.abs(x) > threshold, x, 0), params)

  def prune_one(path, x):
    rows = x.shape[0] if _is_stacked(path) else 1
    least = _threshold(jnp.abs(x).reshape(rows, -1), sparsity)
    least = least.reshape(-1, *[1] * (x.ndim - 1)) if rows > 1 else least[0]
    return jnp.where(jnp.abs(x) > least, x, 0)

  return _map(prune_one, params)


def sparsity(params: PyTree) -> float:
  """Returns the fraction of zeros in the matrices of a model."""
  matrices = [x for _, x in _pruned(params)]
  zeros = sum(int((x == 0).sum()) for x in matrices)
  return zeros / max(sum(x.size for x in matrices), 1)


def _threshold(size_NxM, sparsity):
  """Returns the size of the largest number to prune in each row; -1: none."""
  count = size_NxM.shape[1]
  pruned = jnp.floor(jnp.float32(sparsity) * count + 1e-3).astype(jnp.int32)
  ascending = jnp.sort(size_NxM, 1)
  last = jnp.take(ascending, jnp.maximum(pruned - 1, 0), 1)
  return jnp.where(pruned > 0, last, -1.0)


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
