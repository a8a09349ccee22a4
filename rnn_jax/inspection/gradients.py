"""The size of gradients and updates, by layer.

    ratio = |update| / |weight|

Norms are Euclidean, over all numbers of a part. The update is what the run's
optimizer would add, with its clipping, moments, weight decay and learning rate.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inspection import anatomy

Norms = dict[str, dict[str, jax.Array]]  # {part: {path of a parameter: norm}}


@jax.jit
def norms(tree: dict) -> Norms:
  """Returns the norm of each array of each part, see `anatomy.parts`."""
  return jax.tree.map(
    lambda x: jnp.sqrt(jnp.sum(x.astype(jnp.float32) ** 2)),
    anatomy.parts(tree),
  )


def describe(
  params: dict, gradients: Sequence[Norms], updates: Sequence[Norms]
) -> tuple[list[dict], list[dict]]:
  """Returns rows for a table of parts and for one of parameters.

  Args:
    params: the weights.
    gradients: norms of the gradients of each batch.
    updates: norms of the update that each batch by itself would make.

  Returns:
    (parts, parameters). A row has 'part', of parameters also 'name',
    'parameters', 'weight_norm', 'gradient_norm' (the mean over batches),
    'gradient_norm_largest', 'update_norm' and 'ratio', means too; the ratio
    is None if all weights are 0.
  """
  weights = jax.device_get(norms(params))
  by_part, by_name = [], []
  parts = jax.eval_shape(anatomy.parts, params)
  for part in sorted(parts, key=anatomy.place):
    arrays = parts[part]
    sizes = (
      weights[part],
      [g[part] for g in gradients],
      [u[part] for u in updates],
    )
    by_part.append({'part': part, **_row(arrays, *sizes)})
    for name, x in arrays.items():
      row = _row({name: x}, *sizes)
      by_name.append({'part': part, 'name': name, **row})
  return by_part, by_name


def _row(arrays, weights, gradients, updates):
  """Returns a row on some arrays of a part, from the norms of all."""

  def joined(norms):
    return math.hypot(*(float(norms[name]) for name in arrays))

  weight, gradients = joined(weights), [*map(joined, gradients)]
  update = float(np.mean([*map(joined, updates)]))
  return {
    'parameters': sum(x.size for x in arrays.values()),
    'weight_norm': weight,
    'gradient_norm': float(np.mean(gradients)),
    'gradient_norm_largest': max(gradients),
    'update_norm': update,
    'ratio': update / weight if weight else None,
  }
