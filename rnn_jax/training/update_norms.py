"""How far a step moves the parameters, by group of parameters.

    |u_G| = sqrt(sum of u^2 over the group)        |u_G| / |p_G|

where u are the updates, rate and weight decay included, and p the parameters
before them. A group is a module of the model, or one inside it: the first two
names of a parameter's path, as 'embedding', 'stack/blocks' or 'body/stack'.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.training import optimizer

PyTree = Any
DEPTH = 2  # names of a group


def squares(tree: PyTree) -> dict[str, jax.Array]:
  """Returns the sum of squares of each group of parameters."""
  sums: dict[str, jax.Array] = {}
  for path, leaf in jax.tree.leaves_with_path(tree):
    names = optimizer.parameter_name(path).split('/')[:-1]
    group = '/'.join(names[:DEPTH])
    sums[group] = sums.get(group, 0.0) + jnp.sum(jnp.square(leaf))
  return sums


def measure(updates: PyTree, params: PyTree) -> dict[str, Any]:
  """Returns the metrics of a step that `describe` reads."""
  return {'squares': {'updates': squares(updates), 'params': squares(params)}}


def ignore(updates: PyTree, params: PyTree) -> dict[str, Any]:
  """Returns no metrics: a program then needn't hold all updates at a time."""
  del updates, params
  return {}


def describe(
  updates: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, float]:
  """Returns the numbers of a row of metrics.

  Args:
    updates: `squares` of the updates, as numbers.
    params: those of the parameters.
  """
  row = {'update_norm': float(np.sqrt(sum(updates.values())))}
  for group, square in updates.items():
    norm = float(np.sqrt(square))
    row[f'update_norm/{group}'] = norm
    if params[group] > 0:
      row[f'update_ratio/{group}'] = norm / float(np.sqrt(params[group]))
  return row
