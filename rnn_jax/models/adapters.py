"""Low-rank adapters: a frozen model whose matrices get small changes.

    W' = W + (alpha / r) A B        W DxF, A Dxr, B rxF

Only A and B are trained, and B starts at 0, so that training starts from the
frozen model. The model's programs see W' where they would see W, so any matrix
can have an adapter: of an MLP, of a cell's recurrence, of each head, of an
embedding. Axes before the last two (layers, heads) have a change each. Dropout
leaves out rows of A, that is inputs of a change, the same ones in all rows of
a batch.

In a training step a layer's W' are summed where the layer runs (`by_layer`), so
that the gradient of W' is one layer's at a time; the optimizer's state is that
of A and B.

With base='int8' or 'int4' the frozen matrices are held in 8 or 4 bits
(rounded_weights.py). A layer uses W = s W_8, and gradients only pass through.

Sources: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021;
Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023.
"""

import contextlib
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.config import name_patterns
from rnn_jax.models import rounded_weights
from rnn_jax.ops import devices

PyTree = Any
Options = config_adapters.Adapters
KEY = 'adapters'  # of the changes, among the parameters of a run
UNCHANGED = 'unchanged'  # the model's parameters, among those of a loss
HELD = (  # what a layer sums to a matrix
  {'base', 'a', 'b'},
  *({*parts, 'a', 'b'} for parts in rounded_weights.HELD),
  *rounded_weights.HELD,
)


def init(key: jax.Array, params: PyTree, options: Options) -> PyTree:
  """Returns new changes: A from U(-1, 1) / sqrt(D), B zero.

  Args:
    key: a PRNG key.
    params: the model's parameters, or their shapes.
    options: section `adapters` of a config.

  Returns:
    A tree with {'a': ...xDxr, 'b': ...xrxF} in the place of each target.

  Raises:
    InputError: a pattern matches no matrix.
  """
  changes: dict[str, jax.Array] = {}
  for name, x in sorted(_targets(params, options).items()):
    key, own = jax.random.split(key)
    *others, D, F = x.shape
    shape = (*others, D, options.rank)
    a = jax.random.uniform(own, shape, jnp.float32, -1, 1) * D**-0.5
    b = jnp.zeros((*others, options.rank, F), jnp.float32)
    changes |= {f'{name}/a': a, f'{name}/b': b}
  return flax.traverse_util.unflatten_dict(changes, sep='/')


def logical_axes(params: PyTree, axes: PyTree) -> dict[str, str]:
  """Returns the logical axes of parameters and their changes, by path.

  Args:
    params: a run's parameters, with changes, or their shapes.
    axes: of the model's parameters, unpacked, a tree like them.
  """
  known = _flat(axes)
  names = dict(known)
  for name in _flat(split(params)[0]):
    target = rounded_weights.unpacked_name(name)
    if target != name:
      names |= rounded_weights.packed_axes(target, known[target])
  for name in _flat(params[KEY]):
    target, _, side = name.rpartition('/')
    *others, inputs, outputs = known[target].partition('+')[0].split('x')
    own = (inputs, '_') if side == 'a' else ('_', outputs)
    names[f'{KEY}/{name}'] = 'x'.join((*others, *own))
  return names


def split(params: PyTree) -> tuple[PyTree, PyTree]:
  """Returns (the model's parameters, the changes)."""
  model = {name: x for name, x in params.items() if name != KEY}
  return model, params[KEY]


def hold(params: PyTree, options: Options) -> PyTree:
  """Returns a model's parameters as a run holds them, see Options.base."""
  if options.base == 'float32':
    return params
  with jax.transfer_guard_host_to_device('allow'):  # those of a file
    return rounded_weights.pack(
      params, lambda name: not is_trained(name, options), options.base
    )


def by_layer(
  params: PyTree,
  changes: PyTree,
  options: Options,
  key: jax.Array | None = None,
) -> tuple[PyTree, contextlib.AbstractContextManager]:
  """Returns what a step computes with, the arguments as of `merge`.

  Returns:
    (parameters, a context in which a model is to be called with them): in it
    the stack's layers sum their matrices when they run, and again where they
    are rematerialized. All others are sums already.
  """
  within = devices.current()
  if within.shards_parameters:  # whose layers gather
    return merge(params, changes, options, key), contextlib.nullcontext()
  held, given = _flat(params), _flat(changes)
  layers = {name: x for name, x in held.items() if _is_of_layers(name)}
  rest = {name: x for name, x in held.items() if name not in layers}
  rest = rounded_weights.unpack(
    flax.traverse_util.unflatten_dict(rest, sep='/')
  )
  rest = _flat(rest)
  for name, a, b in _each(given, options, key):
    if not _is_of_layers(name):
      rest[name] = rest[name] + _change(a, b, options)
      continue
    if name in layers:
      layers[f'{name}/base'] = layers.pop(name)
    layers |= {f'{name}/a': a, f'{name}/b': b}
  tree = flax.traverse_util.unflatten_dict(rest | layers, sep='/')
  summing: Any = _Summing(within, options)
  return tree, devices.use(summing)


def _is_of_layers(name):
  return 'stack/blocks/' in name  # those of models/stack.py with an axis R


class _Summing:
  """Devices whose layers sum their matrices when they run."""

  shards_parameters = True  # a layer asks for its own
  gathers_parameters = False

  def __init__(self, within: devices.OneDevice, options: Options) -> None:
    self._within = within
    self._options = options

  def __getattr__(self, name: str) -> Any:
    return getattr(self._within, name)

  def gather(self, params: PyTree, logical_axes: Any) -> PyTree:
    del logical_axes

    def whole(path, x):
      if not _is_parts(x):
        return x
      key = path[-1].key
      held = {name: x[name] for name in rounded_weights.PARTS if name in x}
      w = rounded_weights.unpack({key: held})[key] if held else x['base']
      return w + _change(x['a'], x['b'], self._options) if 'a' in x else w

    return jax.tree.map_with_path(whole, params, is_leaf=_is_parts)


def _is_parts(x):
  return isinstance(x, dict) and x.keys() in HELD


def merge(
  params: PyTree,
  changes: PyTree,
  options: Options,
  key: jax.Array | None = None,
) -> PyTree:
  """Returns the parameters W'.

  Args:
    params: the model's, as `hold` returns them.
    changes: as `init` returns them.
    options: section `adapters` of a config.
    key: a PRNG key of dropout, or None.
  """
  merged = _flat(rounded_weights.unpack(params))
  for name, a, b in _each(_flat(changes), options, key):
    merged[name] = merged[name] + _change(a, b, options)
  return flax.traverse_util.unflatten_dict(merged, sep='/')


def _each(given, options, key):
  """Yields the names of all targets, and their A and B after dropout."""
  for number, name in enumerate(sorted({x.rpartition('/')[0] for x in given})):
    a, b = given[f'{name}/a'], given[f'{name}/b']
    if key is not None and options.dropout:
      own = jax.random.fold_in(key, number)
      kept = jax.random.bernoulli(own, 1 - options.dropout, (*a.shape[:-1], 1))
      a = jnp.where(kept, a / (1 - options.dropout), 0)
    yield name, a, b


def _change(a, b, options):
  product = jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
  return options.alpha / options.rank * product


def is_trained(name: str, options: Options) -> bool:
  """Returns whether a run's parameter of this name is trained."""
  name = rounded_weights.unpacked_name(name)
  return (
    name.startswith(f'{KEY}/')
    or name_patterns.first_match(options.trained, name) is not None
  )


def trained(params: PyTree, options: Options) -> PyTree:
  """Returns those of a run's parameters that are trained, and saved."""
  kept = {k: x for k, x in _flat(params).items() if is_trained(k, options)}
  return flax.traverse_util.unflatten_dict(kept, sep='/')


def completed(params: PyTree, trained: PyTree) -> PyTree:
  """Returns `params` with the trained ones in their places."""
  return flax.traverse_util.unflatten_dict(
    _flat(params) | _flat(trained), sep='/'
  )


def _targets(params, options):
  """Returns the matrices by name that have a change."""
  matrices = {
    name: x
    for name, x in _flat(params).items()
    if len(x.shape) >= 2 and name.rpartition('/')[2] in ('kernel', 'embedding')
  }
  for key in 'targets', 'trained':
    for pattern in getattr(options, key):
      among = matrices if key == 'targets' else _flat(params)
      if not name_patterns.match_any(pattern, among):
        listed = '\n  '.join(among)
        errors.refuse(
          f'adapters.{key}',
          pattern,
          'it matches no name; a regular expression must match the whole of '
          f'one of\n  {listed}',
        )
  return {
    name: x
    for name, x in matrices.items()
    if name_patterns.first_match(options.targets, name) is not None
    and not is_trained(name, options)
  }


def _flat(tree):
  return flax.traverse_util.flatten_dict(tree, sep='/')
