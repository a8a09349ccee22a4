"""The Kronecker factors of a model's Dense kernels, from its backward pass.

A linen Dense may have two more parameters next to its kernel DxF, with any
values: 'inputs' DxD and 'outputs' FxF, or D and F. Inside `tagging` their
gradients are the factors of `ops/kronecker.py`. As parameters they pass through
scans over layers, rematerialization and segments like the kernel, and are
stacked like it.
"""

import contextlib
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.ops import kronecker

PyTree = Any
KERNEL = 'kernel'


class Factors(NamedTuple):
  """The factors A and G of one kernel; see `ops/kronecker.py`."""

  inputs: jax.Array
  outputs: jax.Array


def kernels(init: Callable[[jax.Array], PyTree]) -> frozenset[str]:
  """Returns the names of the kernels of all Dense layers that are called.

  `init` returns parameters from a key; only its shapes are computed.
  """
  names = set()

  def record(run, args, options, context):
    if _is_dense_call(context):
      names.add('/'.join((*context.module.path, KERNEL)))
    return run(*args, **options)

  with nn.intercept_methods(record):
    jax.eval_shape(lambda: init(jax.random.key(0)))
  return frozenset(names)


def blank(params: PyTree, names: Iterable[str], longest: int) -> PyTree:
  """Returns a tree with Factors of zeros in place of each named kernel.

  Args:
    params: arrays or their shapes.
    names: of kernels, as 'stack/blocks/mlp/up/kernel'.
    longest: the longest side of a full factor; above it, only the diagonal.

  Returns:
    A tree like `params`, with only the named leaves.
  """

  def zeros(stack, side):
    sides = (side,) if side > longest else (side, side)
    return jnp.zeros((*stack, *sides), jnp.float32)

  factors: dict[str, Any] = {}
  for name in sorted(names):
    *path, last = name.split('/')
    branch, kernel = factors, params
    for key in path:
      branch, kernel = branch.setdefault(key, {}), kernel[key]
    *stack, rows, columns = kernel[last].shape
    branch[last] = Factors(zeros(stack, rows), zeros(stack, columns))
  return factors


def joined(params: PyTree, factors: PyTree) -> PyTree:
  """Returns parameters with Factors next to their kernels."""
  params = dict(params)
  for key, inner in factors.items():
    if isinstance(inner, Factors):
      params |= inner._asdict()
    else:
      params[key] = joined(params[key], inner)
  return params


def averaged(factors: PyTree, weight: jax.Array, scale: jax.Array) -> PyTree:
  """Returns mean factors from sums over rows.

  Args:
    factors: the sums, a tree of Factors.
    weight: of the rows.
    scale: the loss was multiplied by it.
  """
  weight = jnp.maximum(weight, 1e-8)

  def divide(sums):
    return Factors(sums.inputs / weight, sums.outputs / (weight * scale**2))

  return jax.tree.map(divide, factors, is_leaf=lambda x: isinstance(x, Factors))


def tagging() -> contextlib.AbstractContextManager:
  """Returns a context in which Factors have gradients.

  Both the differentiated function and its backward pass are traced inside.
  """

  def tag(run, args, options, context):
    y, module = run(*args, **options), context.module
    has_factors = _is_dense_call(context)
    if not has_factors or not module.has_variable('params', 'inputs'):
      return y
    factors = (module.get_variable('params', name) for name in Factors._fields)
    return kronecker.tagged(y, *args, *factors)

  return nn.intercept_methods(tag)


def _is_dense_call(context):
  called = context.method_name == '__call__'
  return called and isinstance(context.module, nn.Dense)
