"""The optimizer of a config: one of `training/optimizers`, after a clip.

With `optimizer.ema_decay`, the parameters are an average of its own
(`training/averaging.py`).

An optimizer is a file with its options, `Config`, and

    make(config, rate, stacked) -> optax.GradientTransformation

where `rate` is the learning rate by step and `stacked` names the parameters
whose first axis counts layers: what depends on a whole matrix treats each of
their layers separately. Its updates are proportional to the rate, weight decay
included, since a schedule may scale them afterwards; they end with `decayed`
and `scaled`, which apply the config's options for single parameters.

A parameter's name is its path, as 'stack/blocks/mlp/up/kernel'. Patterns are
regular expressions that must match a whole name; the first match counts.

Where gradients are taken at other points than the parameters, the file also has

    point(config, params, state) -> the parameters that they are taken at

and `params` are always those that evaluations, checkpoints and users see.

Where updates need the Kronecker factors of kernels (`models/dense.py`), it has
FACTORED = True, and instead

    make(config, rate, stacked, factors) -> the same, with extra arguments

where `factors` are shapes; its updates take a batch's factors as `factors`.
"""

import types
from collections.abc import Callable
from collections.abc import Collection
from typing import Any

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import name_patterns
from rnn_jax.models import adapters
from rnn_jax.models import dense
from rnn_jax.models import int8_weights
from rnn_jax.training import averaging

PyTree = Any
DECAYED = 'kernel'  # matrices; not embeddings, biases, norms, taps


def make(
  config: config_lib.Config,
  rate: optax.Schedule,
  stacked: Collection[str] = frozenset(),
  factors: PyTree = None,
  frozen: PyTree = None,
) -> optax.GradientTransformationExtraArgs:
  """Returns the gradient transformation of a config.

  Args:
    config: the run's config.
    rate: the learning rate by step.
    stacked: names of the parameters whose first axis counts layers.
    factors: `factor_shapes` of the model.
    frozen: `frozen_mask` of the parameters; None: all are trained.
  """
  extra = (factors,) if factors else ()
  transform = _part(config).make(config, rate, stacked, *extra)
  if config.optimizer.clip_norm:
    clip = optax.clip_by_global_norm(config.optimizer.clip_norm)
    transform = optax.chain(clip, transform)
  if config.optimizer.ema_decay:
    transform = averaging.average(
      optax.with_extra_args_support(transform), config.optimizer.ema_decay
    )
  if any(jax.tree.leaves(frozen)):
    transform = optax.selective_transform(transform, freeze_mask=frozen)
  return optax.with_extra_args_support(transform)


def gradient_point(
  config: config_lib.Config,
) -> Callable[[PyTree, PyTree], PyTree] | None:
  """Returns (params, state) -> where gradients are taken.

  None: they are taken at the parameters.
  """
  if config.optimizer.ema_decay:
    return lambda params, state: averaging.completed(
      averaging.find(state, averaging.State).z, params
    )
  point = getattr(_part(config), 'point', None)
  return point and (lambda params, state: point(config, params, state))


def factor_shapes(
  config: config_lib.Config, init: Callable[[jax.Array], PyTree], shapes: PyTree
) -> PyTree:
  """Returns the shapes of the Factors that the optimizer takes, {} for none.

  Args:
    config: the run's config.
    init: makes parameters from a key.
    shapes: of these parameters.

  Raises:
    InputError: the config has adapters.
  """
  if not getattr(_part(config), 'FACTORED', False):
    return {}
  if config.adapters.rank:
    errors.refuse(
      'optimizer.name',
      config.optimizer.name,
      "it has no factors for adapters: use another, such as 'adamw'",
    )
  patterns = config.optimizer.frozen
  trained = {
    kernel
    for kernel in dense.kernels(init)
    if name_patterns.first_match(patterns, kernel) is None
  }
  return jax.eval_shape(
    lambda: dense.blank(shapes, trained, config.optimizer.longest_side)
  )


def parameter_name(path: jax.tree_util.KeyPath) -> str:
  """Returns the name of a parameter from its path in a tree."""
  return '/'.join(key.key for key in path)


def frozen_mask(config: config_lib.Config, params: PyTree) -> PyTree:
  """Returns a tree like `params`: True for those that never change."""
  patterns, options = config.optimizer.frozen, config.adapters

  def is_frozen(path, _):
    name = parameter_name(path)
    if options.rank:
      return not adapters.is_trained(name, options)
    return name_patterns.first_match(patterns, name) is not None

  return jax.tree.map_with_path(is_frozen, params)


def freezes(config: config_lib.Config) -> bool:
  """Returns whether any parameter never changes, see `frozen_mask`."""
  return bool(config.optimizer.frozen or config.adapters.rank)


def describe_frozen(config: config_lib.Config, params: PyTree) -> str:
  """Returns lines about the parameters that never change, '' without any."""
  if config.adapters.rank:
    return _describe_adapters(config.adapters, params)
  patterns = config.optimizer.frozen
  matched: dict[int, list[str]] = {n: [] for n in range(len(patterns))}
  total = frozen = 0
  for path, leaf in jax.tree.leaves_with_path(params):
    name, total = parameter_name(path), total + leaf.size
    if (n := name_patterns.first_match(patterns, name)) is not None:
      matched[n].append(f'{name} ({leaf.size:,})')
      frozen += leaf.size
  if not patterns:
    return ''
  lines = [f'frozen: {frozen:,} of {total:,} parameters']
  for n, names in matched.items():
    listed = ', '.join(names) or 'only what an earlier pattern matches'
    lines.append(f'  {patterns[n]!r}: {listed}')
  return '\n'.join(lines)


def _describe_adapters(options, params):
  sizes = {
    parameter_name(path): leaf.size
    for path, leaf in jax.tree.leaves_with_path(
      jax.eval_shape(int8_weights.unpack, params)
    )
  }
  trained = {x: n for x, n in sizes.items() if adapters.is_trained(x, options)}
  changed = sum(name.endswith('/a') for name in trained)
  return (
    f'adapters of rank {options.rank} for {changed} matrices: '
    f'{sum(trained.values()):,} of {sum(sizes.values()):,} parameters are '
    f'trained and saved; the frozen matrices are in {options.base}'
  )


def check_names(config: config_lib.Config, params: PyTree) -> None:
  """Checks that patterns name parameters, and leave some to train.

  Raises:
    InputError: names the pattern and lists the parameters.
  """
  options = config.optimizer
  leaves = jax.tree.leaves_with_path(params)
  names = [parameter_name(path) for path, _ in leaves]
  listed = '\n  '.join(names)
  given = {
    'multipliers': [pattern for pattern, _ in options.multipliers],
    'weight_decays': [pattern for pattern, _ in options.weight_decays],
    'frozen': options.frozen,
  }
  for key, patterns in given.items():
    for pattern in patterns:
      if not name_patterns.match_any(pattern, names):
        raise errors.InputError(
          f'optimizer.{key}: {pattern!r} matches no parameter; a regular '
          f'expression must match the whole of one of\n  {listed}'
        )
  if all(
    name_patterns.first_match(options.frozen, name) is not None
    for name in names
  ):
    raise errors.InputError(
      f'optimizer.frozen={options.frozen!r}: nothing is left to train of\n  '
      f'{listed}'
    )


def decayed(config: config_lib.Config) -> optax.GradientTransformation:
  """Returns what adds to each direction its parameter times its weight decay.

  This is the one in `optimizer.weight_decays`; else `optimizer.weight_decay`
  for kernels and 0 for all other parameters.
  """
  options = config.optimizer
  patterns = [pattern for pattern, _ in options.weight_decays]

  def decay(name):
    number = name_patterns.first_match(patterns, name)
    if number is not None:
      return options.weight_decays[number][1]
    return options.weight_decay if name.split('/')[-1] == DECAYED else 0.0

  def update(path, direction, param):
    rate = decay(parameter_name(path))
    return direction + rate * param if rate else direction

  return optax.stateless(
    lambda updates, params: jax.tree.map_with_path(update, updates, params)
  )


def scaled(
  config: config_lib.Config, rate: optax.Schedule
) -> optax.GradientTransformation:
  """Returns what multiplies directions by -rate and their multipliers."""
  multipliers = config.optimizer.multipliers
  descend = optax.scale_by_learning_rate(rate)
  if not multipliers:
    return descend
  patterns = [pattern for pattern, _ in multipliers]

  def multiply(path, update):
    number = name_patterns.first_match(patterns, parameter_name(path))
    return update if number is None else multipliers[number][1] * update

  multiplied = optax.stateless(
    lambda updates, params: jax.tree.map_with_path(multiply, updates)
  )
  return optax.chain(multiplied, descend)


def by_layer(
  transform: optax.GradientTransformation, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns a stateless transformation, applied to each layer separately."""

  def update_one(update, param):
    return transform.update(update, optax.EmptyState(), param)[0]

  def apply(path, update, param):
    is_stacked = parameter_name(path) in stacked
    return (jax.vmap(update_one) if is_stacked else update_one)(update, param)

  return optax.stateless(
    lambda updates, params: jax.tree.map_with_path(apply, updates, params)
  )


def _part(config: config_lib.Config) -> types.ModuleType:
  name = config.optimizer.name
  return config_lib.load('training/optimizers', name, 'optimizer.name')
