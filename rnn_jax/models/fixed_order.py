"""A step of a model whose rows have the same bits in any batch.

Within `evaluate`, norms and all other sums and products of one step are those
of ops/fixed_order. With packed matrices (packed_weights.py) a row's result then
depends neither on the other rows nor on their number.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.ops import fixed_order


def evaluate(run: Callable[..., Any], *args: Any) -> Any:
  """Returns run(*args); as it is where the library isn't available.

  Args:
    run: applies a model.
    *args: pytrees of arrays, as the result.
  """
  if fixed_order.lacking():
    return run(*args)
  with nn.intercept_methods(_normed):
    return fixed_order.evaluate(run, *args)


def _normed(run, args, options, context):
  module = context.module
  if context.method_name != '__call__' or options or len(args) != 1:
    return run(*args, **options)
  norm = functools.partial(_norm, module, *args)
  if isinstance(module, nn.RMSNorm) and module.reduction_axes == -1:
    return norm(centered=False)
  if isinstance(module, nn.LayerNorm) and module.reduction_axes == -1:
    return norm(centered=True)
  return run(*args, **options)


def _norm(module, x, centered):
  names = 'scale', 'bias'
  learned = [
    module.get_variable('params', name)
    if getattr(module, f'use_{name}', False)
    else None
    for name in names
  ]
  y = fixed_order.norm(x, *learned, epsilon=module.epsilon, centered=centered)
  dtype = module.dtype or jnp.result_type(
    x, *(w for w in learned if w is not None)
  )
  return y.astype(jax.dtypes.canonicalize_dtype(dtype))
