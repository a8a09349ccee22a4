"""Adapters of one model, another one for each row of a batch.

    y_b = x_b W + (x_b A_i) B_i        i: the adapter of row b

W is held once, and of each adapter only its thin matrices, in a table: A
ExDxr, B ExrxF, with the factor alpha / r in B. What an adapter lacks, columns
of a lower rank or a whole matrix, is zero there, and all of adapter 0 is: it is
the model itself. Axes before the last two are those of the matrix, such as
heads.

`applied` adds the products where layers are called, so that rows of different
adapters share a call; it knows the layers of a step. `merged` sums the matrices
for one adapter, W + A_i B_i, which any program reads.
Sources: Chen et al., "Punica: Multi-Tenant LoRA Serving", 2023; Sheng et al.,
"S-LoRA: Serving Thousands of Concurrent LoRA Adapters", 2023.
"""

import contextlib
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.cells.parts import by_head
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from rnn_jax.models import packed_weights
from rnn_jax.runs import adapter as adapter_lib
from rnn_jax.runs import bundle as bundle_lib

PyTree = Any
SIDES = ('a', 'b')


class Factors(NamedTuple):
  """The thin matrices of one matrix, of E adapters or of B rows."""

  a: Any  # Ex...xDxr
  b: Any  # Ex...xrxF


Table = dict[str, Factors]  # by the name of a parameter of `layers.unstack`


def make_table(adapters: Sequence[adapter_lib.Adapter]) -> Table:
  """Returns the table of adapters 1, 2, ... as NumPy arrays, {} for none.

  They are of one model, whose parameters are traced once.
  """
  if not adapters:
    return {}
  like = bundle_lib.like(adapters[0].config, adapters[0].tokenizer)
  each = [_by_layer(adapter, like) for adapter in adapters]
  most = max(x.config.adapters.rank for x in adapters)
  table = {}
  for name in sorted({name for own in each for name in own}):
    one = next(own[name] for own in each if name in own)
    *others, D, _ = one.a.shape
    a = np.zeros((len(each) + 1, *others, D, most), np.float32)
    b = np.zeros((len(each) + 1, *others, most, one.b.shape[-1]), np.float32)
    for n, (own, adapter) in enumerate(zip(each, adapters, strict=True), 1):
      if name not in own:
        continue
      options = adapter.config.adapters
      a[n, ..., : options.rank] = own[name].a
      scale = np.float32(options.alpha / options.rank)
      b[n, ..., : options.rank, :] = scale * own[name].b
    table[name] = Factors(a, b)
  return table


def take(table: Table, index: jax.Array) -> Table:
  """Returns the factors of one adapter, or of a row for each index."""
  return jax.tree.map(lambda x: x[index], table)


def merged(params: PyTree, factors: Table) -> PyTree:
  """Returns W + A B of float32 parameters, with the factors of one adapter."""
  flat = flax.traverse_util.flatten_dict(params, sep='/')
  for name, own in factors.items():
    flat[name] = flat[name] + _product(own.a, own.b)
  return flax.traverse_util.unflatten_dict(flat, sep='/')


def applied(
  factors: Table, seen: set[str] | None = None
) -> contextlib.AbstractContextManager:
  """Returns a context in which a model's rows have changes of their own.

  Args:
    factors: of B rows, see `take`; the model is called with B rows.
    seen: gets the names of the factors that a call uses.
  """

  def run_changed(run, args, options, context):
    y = run(*args, **options)
    name, change = _find(context)
    if name not in factors:
      return y
    if seen is not None:
      seen.add(name)
    added = change(context.module, factors[name], *args)
    return (y.astype(jnp.float32) + added).astype(y.dtype)

  return nn.intercept_methods(run_changed)


def check(model: nn.Module, params: PyTree, table: Table) -> None:
  """Checks that a step of the model can have all changes of a table.

  Raises:
    InputError: names the matrices that are read elsewhere than in the layers
      that `applied` knows.
  """
  if not table:
    return
  seen: set[str] = set()
  B = 2

  def step(params, table):
    state = model.apply({}, B, method='init_state')
    tokens = jnp.zeros((B, 1), jnp.int32)
    params = {'params': packed_weights.unpack(params)}
    with applied(take(table, jnp.zeros(B, jnp.int32)), seen):
      return model.apply(params, state, tokens)

  jax.eval_shape(step, params, table)
  if lacking := sorted({*table} - seen):
    errors.refuse(
      'adapters.targets',
      ', '.join(lacking),
      'these matrices cannot differ from row to row: merge the adapters '
      '(launch.export, launch.convert), and serve that run',
    )


def _by_layer(adapter, like):
  """Returns an adapter's Factors by the names of `layers.unstack`.

  Args:
    adapter: of a model.
    like: the shapes of the model's parameters.
  """
  # Of what isn't changed, only the axis of layers matters.
  flat = {
    name: np.zeros(x.shape[:1], np.float32)
    for name, x in flax.traverse_util.flatten_dict(like, sep='/').items()
  }
  changes = flax.traverse_util.flatten_dict(adapter.changes, sep='/')
  for name in {name.rpartition('/')[0] for name in changes}:
    del flat[name]
  full = flax.traverse_util.unflatten_dict(flat | changes, sep='/')
  flat = flax.traverse_util.flatten_dict(layers.unstack(full), sep='/')
  names = {name.removesuffix('/b') for name in flat if name.endswith('/b')}
  return {
    name: Factors(*(np.asarray(flat[f'{name}/{side}']) for side in SIDES))
    for name in names
  }


def _find(context):
  """Returns (name of the matrix that a call reads, what its change adds)."""
  module, method = context.module, context.method_name
  path = '/'.join(module.path)
  if isinstance(module, language_model.LanguageModel):
    embedding, head = packed_weights.EMBEDDING, packed_weights.HEAD
    tied = module.config.tied
    return {
      'look_up': (embedding, _of_embedding),
      'uncapped': (embedding, _of_tied_head) if tied else (head, _of_dense),
    }.get(method, ('', None))
  if method == '__call__':
    if isinstance(module, nn.Dense):
      return f'{path}/kernel', _of_dense
    if isinstance(module, by_head.Dense):
      return f'{path}/kernel', _of_heads
    if isinstance(module, nn.Embed) and path != 'embedding':
      return f'{path}/embedding', _of_embedding
  return '', None


def _of_dense(module, own, x):
  del module
  x_BxNxD = x.reshape(x.shape[0], -1, x.shape[-1])
  y_BxNxF = _product(_product(x_BxNxD, own.a), own.b)
  return y_BxNxF.reshape(*x.shape[:-1], own.b.shape[-1])


def _of_heads(module, own, x_BxLxHxI):
  del module
  x_BxHxLxI = x_BxLxHxI.swapaxes(1, 2)
  return _product(_product(x_BxHxLxI, own.a), own.b).swapaxes(1, 2)


def _of_embedding(module, own, tokens_BxL):
  del module
  a_BxLxr = jax.vmap(lambda a_Vxr, tokens_L: a_Vxr[tokens_L])(own.a, tokens_BxL)
  return _product(a_BxLxr, own.b)


def _of_tied_head(module, own, x_BxLxD):
  own = Factors(own.b.swapaxes(1, 2), own.a.swapaxes(1, 2))
  return module.tied_scale * _of_dense(module, own, x_BxLxD)


def _product(x, y):
  x = x.astype(jnp.float32)
  return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)
