"""Parameters as products read them: packed, in 32 to 4 bits (ops/products).

A matrix ('kernel') is packed as it is, an embedding VxD as the matrix DxV, by
which a tied head multiplies and whose columns are the tokens' vectors. Both may
have leading axes, of layers or heads. All other parameters stay float32.

Within `multiplying`, the layers that multiply by one matrix read it packed;
whatever else reads a matrix gets it from `unpack`. The others that `unpack`
makes are read by nothing, and XLA leaves them out.
"""

import contextlib
import functools
from typing import Any

import flax.linen as nn
import jax

from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.ops import products
from rnn_jax.system import large_pages

PyTree = Any
EMBEDDING = 'embedding/embedding'
HEAD = 'head/kernel'
LARGE = 2**19  # numbers of a matrix from which packing float32 saves time


def pack(
  params: PyTree, format: str, impl: str = 'auto', least: int = 0
) -> PyTree:
  """Returns parameters with their matrices packed.

  Args:
    params: nested dicts of arrays.
    format: one of products.FORMATS.
    impl: one of products.IMPLS.
    least: numbers of a matrix that is packed.
  """
  run = functools.partial(products.pack, format=format, impl=impl)
  return _map(lambda x: _each(run, x), params, least)


def pack_to_serve(
  params: PyTree, format: str, batch_invariant: bool = False
) -> PyTree:
  """Returns parameters packed where that saves memory or time.

  In float32 it saves time, of large matrices in C++, and else nothing; small
  ones are packed too if rows are to be `batch_invariant`. Packed ones stay.
  What C++ reads is in large pages.
  """
  if products.lacking_native():
    return params if format == 'float32' else pack(params, format)
  least = LARGE if format == 'float32' and not batch_invariant else 0
  return _in_large_pages(pack(params, format, least=least), params)


def _in_large_pages(packed, given):
  """Returns `packed` with a copy of those arrays that `given` hasn't."""
  there = {id(x) for x in jax.tree.leaves(given)}
  leaves, tree = jax.tree.flatten(packed)
  own = [n for n, x in enumerate(leaves) if id(x) not in there]
  copies = large_pages.copy(jax.device_get([leaves[n] for n in own]))
  for n, x in zip(own, jax.device_put(copies), strict=True):
    leaves[n] = x
  return jax.tree.unflatten(tree, leaves)


def panels(params: PyTree, format: str) -> PyTree:
  """Returns `pack_to_serve` for the native form, on any machine."""
  run = functools.partial(products.panels, format=format)
  return _map(lambda x: _each(run, x), params, _least(format))


def panels_like(shapes: PyTree, format: str) -> PyTree:
  """Returns the shapes and dtypes of `panels`.

  Args:
    shapes: of the parameters, as jax.ShapeDtypeStructs.
    format: one of products.FORMATS.
  """

  def like(x):
    return products.panels_like(x.shape, format)

  return _map(like, shapes, _least(format), _turned)


def for_this_machine(params: PyTree) -> PyTree:
  """Returns `panels` as this machine multiplies by them."""
  return jax.tree.map(
    lambda x: products.for_this_machine(x) if _is_packed(x) else x,
    params,
    is_leaf=_is_packed,
  )


def _least(format):
  return LARGE if format == 'float32' else 0


def _each(run, x):
  """Returns run(matrix) of each matrix of an array."""
  if x.ndim == 2:
    return run(x)
  return jax.lax.map(lambda matrix: _each(run, matrix), x)


def _map(run, params, least, turn=lambda x: x.swapaxes(-1, -2)):
  """Returns parameters with run(x) of those that are packed."""

  def packed(path, x):
    if not _is_matrix(path, x):
      return x
    if x.shape[-2] * x.shape[-1] < least:
      return x
    return run(turn(x) if path[-1].key == 'embedding' else x)

  return jax.tree.map_with_path(packed, params, is_leaf=_is_packed)


def _is_matrix(path, x):
  """Returns whether `pack` packs a parameter."""
  if _is_packed(x):
    return False
  return path[-1].key in ('kernel', 'embedding') and x.ndim > 1


def is_wholly_packed(params: PyTree) -> bool:
  """Returns whether all matrices that `pack` packs are packed."""
  leaves = jax.tree.leaves_with_path(params, is_leaf=_is_packed)
  return not any(_is_matrix(path, x) for path, x in leaves)


def _turned(x):
  *several, K, F = x.shape
  return jax.ShapeDtypeStruct((*several, F, K), x.dtype)


def count(params: PyTree) -> int:
  """Returns the number of parameters, packed or not."""
  return sum(x.size for x in jax.tree.leaves(params, is_leaf=_is_packed))


def unpack(params: PyTree) -> PyTree:
  """Returns parameters as float32, the inverse of `pack` but rounded."""

  def unpacked(path, x):
    if not _is_packed(x):
      return x
    w = products.unpack(x)
    return w.swapaxes(-1, -2) if path[-1].key == 'embedding' else w

  return jax.tree.map_with_path(unpacked, params, is_leaf=_is_packed)


def is_packed(params: PyTree) -> bool:
  """Returns whether any parameter is packed."""
  return bool(formats(params))


def formats(params: PyTree) -> frozenset[str]:
  """Returns the formats of the parameters that are packed."""
  leaves = jax.tree.leaves(params, is_leaf=_is_packed)
  return frozenset(x.format for x in leaves if _is_packed(x))


def multiplying(
  params: PyTree, alike: bool = False
) -> contextlib.AbstractContextManager:
  """Returns a context in which a language model multiplies by packed matrices.

  Args:
    params: of `pack`; the model is called with what `unpack` returns of them.
    alike: whether blocks that are alike are traced once: no other context
      changes what they do.
  """
  leaves = jax.tree.leaves_with_path(params, is_leaf=_is_packed)
  packed = {
    '/'.join(key.key for key in path): x for path, x in leaves if _is_packed(x)
  }

  def run_packed(run, args, options, context):
    module, method = context.module, context.method_name
    called = method == '__call__'
    apart = isinstance(module, blocks.Block) and not module.uses_shared
    if called and alike and apart and module.path:
      block = module.clone(parent=None, name=None)
      return _run_block(block, params[module.name], *args)
    if called and isinstance(module, nn.Dense):
      kernel = packed.get('/'.join((*module.path, 'kernel')))
      if kernel is not None:
        return _of_dense(module, kernel, *args)
    if isinstance(module, language_model.LanguageModel):
      if method == 'look_up' and EMBEDDING in packed:
        return products.take(packed[EMBEDDING], *args)
      table = packed.get(EMBEDDING if module.config.tied else HEAD)
      if method == 'uncapped' and table is not None:
        return _of_head(module, table, *args)
    return run(*args, **options)

  return nn.intercept_methods(run_packed)


@functools.partial(jax.jit, static_argnums=0)
def _run_block(block, params, stream, state, starts_BxL):
  with multiplying(params):
    variables = {'params': unpack(params)}
    return block.apply(variables, stream, state, starts_BxL)


def _of_dense(module, kernel, x):
  y = products.multiply(x, kernel)
  if module.use_bias:
    y = _biased(y, module.get_variable('params', 'bias'))
  return y.astype(module.dtype or x.dtype)


def _of_head(module, table, x_BxLxD):
  logits = products.multiply(x_BxLxD, table)
  if module.config.tied:
    return logits * module.tied_scale
  bias = module.variables['params']['head'].get('bias')
  return logits if bias is None else _biased(logits, bias)


def _biased(y, bias_F):
  return y + bias_F.reshape((1,) * (y.ndim - 1) + bias_F.shape)


def _is_packed(x):
  return isinstance(x, products.Packed)
