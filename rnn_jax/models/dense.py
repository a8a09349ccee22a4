"""The Kronecker factors of a model's Dense kernels, from its backward pass.

Beside a kernel DxF of a linen Dense there may lie two parameters more, of any
value: 'inputs' DxD and 'outputs' FxF, or D and F. Inside `tagging` their
gradients are the factors of `ops/kronecker.py`. As parameters they go through
scans over layers, rematerialization and segments as the kernel does, stacked as
it is.
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
  """Of one kernel: A and G; see `ops/kronecker.py`."""

  inputs: Any
  outputs: Any


def kernels(init: Callable[[jax.Array], PyTree]) -> frozenset[str]:
  """Returns the names of the kernels that a Dense multiplies by.

  `init` makes parameters from a key; only its shapes are computed.
  """
  found = set()

  def record(run, args, options, context):
    if _is_product(context):
      found.add('/'.join((*context.module.path, KERNEL)))
    return run(*args, **options)

  with nn.intercept_methods(record):
    jax.eval_shape(lambda: init(jax.random.key(0)))
  return frozenset(found)


def blank(params: PyTree, names: Iterable[str], longest: int) -> PyTree:
  """Returns Factors of zeros at the place of each named kernel.

  Args:
    params: arrays or their shapes.
    names: of kernels, as 'stack/blocks/mlp/up/kernel'.
    longest: a longer side has the diagonal alone.

  Returns:
    `params` without all that isn't named.
  """

  def zeros(stack, side):
    sides = (side,) if side > longest else (side, side)
    return jnp.zeros((*stack, *sides), jnp.float32)

  found = {}
  for name in sorted(names):
    *path, last = name.split('/')
    place, kernel = found, params
    for key in path:
      place, kernel = place.setdefault(key, {}), kernel[key]
    *stack, rows, columns = kernel[last].shape
    place[last] = Factors(zeros(stack, rows), zeros(stack, columns))
  return found


def joined(params: PyTree, factors: PyTree) -> PyTree:
  """Returns parameters with Factors beside their kernels."""
  params = dict(params)
  for key, inner in factors.items():
    if isinstance(inner, Factors):
      params |= inner._asdict()
    else:
      params[key] = joined(params[key], inner)
  return params


def averaged(factors: PyTree, weight: jax.Array, scale: jax.Array) -> PyTree:
  """Returns sums over rows of a loss times `scale`, divided by their weight."""
  weight = jnp.maximum(weight, 1e-8)

  def divide(found):
    return Factors(found.inputs / weight, found.outputs / (weight * scale**2))

  return jax.tree.map(divide, factors, is_leaf=lambda x: isinstance(x, Factors))


def tagging() -> contextlib.AbstractContextManager:
  """Makes each Dense with Factors give their gradients.

  What is differentiated is traced inside, and so is its backward pass.
  """

  def tag(run, args, options, context):
    y, module = run(*args, **options), context.module
    if not _is_product(context) or not module.has_variable('params', 'inputs'):
      return y
    found = (module.get_variable('params', name) for name in Factors._fields)
    return kronecker.tagged(y, *args, *found)

  return nn.intercept_methods(tag)


def _is_product(context):
  called = context.method_name == '__call__'
  return called and isinstance(context.module, nn.Dense)
