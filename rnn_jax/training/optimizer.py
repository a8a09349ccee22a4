"""The optimizer of a run: one of `training/optimizers`, after a clip.

With `optimizer.ema_decay`, the parameters are an average of its own
(`training/averaging.py`).

An optimizer is a file with its options, `Config`, and

    make(options, rate, stacked) -> optax.GradientTransformation

where `rate` is the learning rate by step and `stacked` names the parameters
whose first axis counts layers: what depends on a whole matrix treats each of
their layers separately. Its updates are proportional to the rate, weight decay
included, since a schedule may scale them afterwards; they end with `decayed`
and `scaled`, which apply the config's options for single parameters.

A parameter's name is its path, as 'stack/blocks/mlp/up/kernel'. Patterns are
regular expressions that must match a whole name; the first match counts.

Where gradients are taken at other points than the parameters, the file also has

    point(options, params, state) -> the parameters that they are taken at

and `params` are always those that evaluations, checkpoints and users see.

Where updates need the Kronecker factors of kernels (`models/dense.py`), it has
FACTORED = True, and instead

    make(options, rate, stacked, factors) -> the same, with extra arguments

where `factors` are shapes; its updates take a batch's factors as `factors`.
"""

import dataclasses
import types
from collections.abc import Callable
from collections.abc import Collection
from typing import Any

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.config import name_patterns
from rnn_jax.models import dense
from rnn_jax.parallel import placement as placement_lib
from rnn_jax.training import averaging
from rnn_jax.training import frozen as frozen_lib

PyTree = Any
DECAYED = 'kernel'  # matrices; not embeddings, biases, norms, taps


@dataclasses.dataclass(frozen=True, eq=False)
class Optimizer:
  """The optimizer of a model.

  Attributes:
    tx: the gradient transformation.
    point: (params, state) -> where gradients are taken; None: at `params`.
    frozen: a tree like the parameters, True for those that never change.
    factors: shapes of the Factors that updates take; {}: they take none.
  """

  tx: optax.GradientTransformationExtraArgs
  point: Callable[[PyTree, PyTree], PyTree] | None
  frozen: PyTree
  factors: PyTree


def of_model(
  options: config_lib.Optimizer,
  changes: config_adapters.Adapters,
  rate: optax.Schedule,
  init: Callable[[jax.Array], PyTree],
  placement: placement_lib.Placement,
) -> Optimizer:
  """Returns the optimizer of a model's parameters.

  Args:
    options: section `optimizer` of the config.
    changes: its section `adapters`.
    rate: the learning rate by step.
    init: makes the model's parameters from a key.
    placement: of the run's parameters.

  Raises:
    InputError: a pattern names no parameter, or none is left to train.
  """
  shapes = placement.shapes
  check_names(options, shapes)
  frozen = frozen_lib.mask(options.frozen, changes, shapes)
  factors = factor_shapes(options, init, shapes)
  tx = make(options, rate, placement.stacked, factors, frozen)
  return Optimizer(tx, gradient_point(options), frozen, factors)


def make(
  options: config_lib.Optimizer,
  rate: optax.Schedule,
  stacked: Collection[str] = frozenset(),
  factors: PyTree = None,
  frozen: PyTree = None,
) -> optax.GradientTransformationExtraArgs:
  """Returns the gradient transformation of section `optimizer` of a config.

  Args:
    options: the section.
    rate: the learning rate by step.
    stacked: names of the parameters whose first axis counts layers.
    factors: `factor_shapes` of the model.
    frozen: True for the parameters that never change; None: all are trained.
  """
  extra = (factors,) if factors else ()
  transform = _part(options).make(options, rate, stacked, *extra)
  if options.clip_norm:
    clip = optax.clip_by_global_norm(options.clip_norm)
    transform = optax.chain(clip, transform)
  if options.ema_decay:
    transform = averaging.average(
      optax.with_extra_args_support(transform), options.ema_decay
    )
  if any(jax.tree.leaves(frozen)):
    transform = optax.selective_transform(transform, freeze_mask=frozen)
  return optax.with_extra_args_support(transform)


def gradient_point(
  options: config_lib.Optimizer,
) -> Callable[[PyTree, PyTree], PyTree] | None:
  """Returns (params, state) -> where gradients are taken.

  None: they are taken at the parameters.
  """
  if options.ema_decay:
    return lambda params, state: averaging.completed(
      averaging.find(state, averaging.State).z, params
    )
  point = getattr(_part(options), 'point', None)
  return point and (lambda params, state: point(options, params, state))


def factor_shapes(
  options: config_lib.Optimizer,
  init: Callable[[jax.Array], PyTree],
  shapes: PyTree,
) -> PyTree:
  """Returns the shapes of the Factors that the optimizer takes, {} for none.

  Args:
    options: section `optimizer` of a config.
    init: makes parameters from a key.
    shapes: of these parameters.
  """
  if not getattr(_part(options), 'FACTORED', False):
    return {}
  trained = {
    kernel
    for kernel in dense.kernels(init)
    if name_patterns.first_match(options.frozen, kernel) is None
  }
  return jax.eval_shape(
    lambda: dense.blank(shapes, trained, options.longest_side)
  )


def parameter_name(path: jax.tree_util.KeyPath) -> str:
  """Returns the name of a parameter from its path in a tree."""
  return '/'.join(key.key for key in path)


def check_names(options: config_lib.Optimizer, params: PyTree) -> None:
  """Checks that patterns name parameters, and leave some to train.

  Raises:
    InputError: names the pattern and lists the parameters.
  """
  names = [
    parameter_name(path) for path, _ in jax.tree.leaves_with_path(params)
  ]
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


def decayed(options: config_lib.Optimizer) -> optax.GradientTransformation:
  """Returns what adds to each direction its parameter times its weight decay.

  This is the one in `optimizer.weight_decays`; else `optimizer.weight_decay`
  for kernels and 0 for all other parameters.
  """
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
  options: config_lib.Optimizer, rate: optax.Schedule
) -> optax.GradientTransformation:
  """Returns what multiplies directions by -rate and their multipliers."""
  multipliers = options.multipliers
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


def _part(options: config_lib.Optimizer) -> types.ModuleType:
  return config_lib.load('training/optimizers', options.name, 'optimizer.name')
