"""Parameters as products read them: packed, in 32 to 4 bits (ops/products).

A matrix ('kernel') is packed as it is, an embedding VxD as the matrix DxV, by
which a tied head multiplies and whose columns are the tokens' vectors. Both may
have leading axes, of layers or heads. All other parameters stay float32.

Within `multiplying`, the layers that multiply by one matrix read it packed;
whatever else reads a matrix gets it from `unpack`.
"""

import contextlib
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.models import dense
from rnn_jax.models import language_model
from rnn_jax.ops import products

PyTree = Any
EMBEDDING = 'embedding/embedding'
HEAD = 'head/kernel'


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

  def packed(path, x):
    name = path[-1].key
    if name not in ('kernel', 'embedding') or x.ndim < 2:
      return x
    if x.shape[-2] * x.shape[-1] < least:
      return x
    run = functools.partial(products.pack, format=format, impl=impl)
    for _ in x.shape[:-2]:
      run = jax.vmap(run)
    return run(x.swapaxes(-1, -2) if name == 'embedding' else x)

  return jax.tree.map_with_path(packed, params)


def unpack(params: PyTree, kept: frozenset[str] = frozenset()) -> PyTree:
  """Returns parameters as float32, the inverse of `pack` but rounded.

  Args:
    params: of `pack`.
    kept: names of those that stay packed, as 'layer_0/mlp/up/kernel'.
  """

  def unpacked(path, x):
    keys = [key.key for key in path]
    if not isinstance(x, products.Packed) or '/'.join(keys) in kept:
      return x
    w = products.unpack(x)
    return w.swapaxes(-1, -2) if keys[-1] == 'embedding' else w

  return jax.tree.map_with_path(unpacked, params, is_leaf=_is_packed)


def is_packed(params: PyTree) -> bool:
  """Returns whether any parameter is packed."""
  return bool(formats(params))


def formats(params: PyTree) -> frozenset[str]:
  """Returns the formats of the parameters that are packed."""
  leaves = jax.tree.leaves(params, is_leaf=_is_packed)
  return frozenset(x.format for x in leaves if _is_packed(x))


@functools.lru_cache(maxsize=64)
def multiplied(model: language_model.LanguageModel) -> frozenset[str]:
  """Returns the names of what a model reads packed within `multiplying`."""
  state = model.apply({}, 1, method='init_state')
  tokens = jnp.zeros((1, 2), jnp.int32)
  shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)

  def run(tokens, key):
    del key
    params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return model.apply(params, state, tokens)

  # A recurrent kernel is a layer's in one step, and read by itself in several.
  one, two = (
    dense.kernels(functools.partial(run, tokens[:, :n])) for n in (1, 2)
  )
  return one & two | {EMBEDDING, HEAD}


def multiplying() -> contextlib.AbstractContextManager:
  """Returns a context in which a language model reads packed matrices."""

  def run_packed(run, args, options, context):
    module, method = context.module, context.method_name
    if isinstance(module, nn.Dense) and method == '__call__':
      kernel = module.get_variable('params', 'kernel')
      if _is_packed(kernel):
        return _of_dense(module, kernel, *args)
    if isinstance(module, language_model.LanguageModel):
      params = module.variables['params']
      table = params['embedding']['embedding']
      if method == 'look_up' and _is_packed(table):
        return products.take(table, *args)
      if method == 'uncapped':
        table = table if module.config.tied else params['head']['kernel']
        if _is_packed(table):
          return _of_head(module, table, params, *args)
    return run(*args, **options)

  return nn.intercept_methods(run_packed)


def _of_dense(module, kernel, x):
  y = products.multiply(x, kernel)
  if module.use_bias:
    y = _biased(y, module.get_variable('params', 'bias'))
  return y.astype(module.dtype or x.dtype)


def _of_head(module, table, params, x_BxLxD):
  logits = products.multiply(x_BxLxD, table)
  if module.config.tied:
    return logits * module.tied_scale
  bias = params['head'].get('bias')
  return logits if bias is None else _biased(logits, bias)


def _biased(y, bias_F):
  return y + bias_F.reshape((1,) * (y.ndim - 1) + bias_F.shape)


def _is_packed(x):
  return isinstance(x, products.Packed)
