"""The optimizer of a config: one of `training/optimizers`, behind a clip.

An optimizer is a file with its options, `Config`, and

    make(config, rate, stacked) -> optax.GradientTransformation

where `rate` is the learning rate by step and `stacked` names the parameters
whose first axis counts layers: what depends on a whole matrix takes each of
their layers by itself. Its updates are proportional to the rate, weight decay
included, since a schedule may scale them afterwards; they end with `decayed`
and `scaled`, which know what the config says of single parameters.

A parameter's name is its path, as 'stack/blocks/mlp/up/kernel'. Of patterns,
regular expressions that fit a whole name, the first that fits counts.

Where gradients are not taken at the parameters, the file has besides

    point(config, params, state) -> the parameters that they are taken at

and `params` are always those that evaluations, checkpoints and users see.

Where updates take the Kronecker factors of kernels (`models/dense.py`), it has
FACTORED = True, and instead

    make(config, rate, stacked, factors) -> the same, with extra arguments

where `factors` are shapes; its updates take those of a batch by that name.
"""

import re

import jax
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.models import dense

DECAYED = 'kernel'  # matrices; not embeddings, biases, norms, taps
FROZEN, TRAINED = 'frozen', 'trained'


def make(config, rate, stacked=frozenset(), factors=None):
  """The gradient transformation of a Config; updates may be given `factors`.

  Args:
    config: Config.
    rate: by step.
    stacked: names of the parameters whose first axis counts layers.
    factors: `factors_of` the model.
  """
  options = config.optimizer
  own = (factors,) if factors else ()
  transform = _file(config).make(config, rate, stacked, *own)
  if options.clip_norm:
    clip = optax.clip_by_global_norm(options.clip_norm)
    transform = optax.chain(clip, transform)
  transform = optax.with_extra_args_support(transform)
  if not options.frozen:
    return transform
  kinds = {TRAINED: transform, FROZEN: optax.set_to_zero()}

  def label(params):
    held = frozen(config, params)
    return jax.tree.map(lambda held: FROZEN if held else TRAINED, held)

  return optax.partition(kinds, label)


def point_of(config):
  """(params, state) -> where gradients are taken; None: at the parameters."""
  found = getattr(_file(config), 'point', None)
  return found and (lambda params, state: found(config, params, state))


def factors_of(config, init, shapes):
  """Shapes of the Factors that a Config's optimizer takes; {}: of none.

  Args:
    config: Config.
    init: makes parameters from a key.
    shapes: of these parameters.
  """
  if not getattr(_file(config), 'FACTORED', False):
    return {}
  patterns = config.optimizer.frozen
  names = dense.kernels(init)
  moving = {told for told in names if matching(patterns, told) is None}
  return jax.eval_shape(
    lambda: dense.blank(shapes, moving, config.optimizer.longest_side)
  )


def name(path):
  """The name of a parameter, from its path in a tree."""
  return '/'.join(key.key for key in path)


def matching(patterns, told):
  """The index of the first pattern that fits a name, or None."""
  fits = (n for n, text in enumerate(patterns) if re.fullmatch(text, told))
  return next(fits, None)


def frozen(config, params):
  """True for the parameters that never change, a tree like them."""
  patterns = config.optimizer.frozen
  return jax.tree.map_with_path(
    lambda path, _: matching(patterns, name(path)) is not None, params
  )


def check_names(config, params):
  """Checks that patterns name parameters, and leave some to train.

  Raises:
    InputError: names the pattern and lists the parameters.
  """
  options = config.optimizer
  names = [name(path) for path, _ in jax.tree.leaves_with_path(params)]
  listed = '\n  '.join(names)
  given = {
    'multipliers': [pattern for pattern, _ in options.multipliers],
    'weight_decays': [pattern for pattern, _ in options.weight_decays],
    'frozen': options.frozen,
  }
  for key, patterns in given.items():
    for pattern in patterns:
      if not any(re.fullmatch(pattern, told) for told in names):
        raise errors.InputError(
          f'optimizer.{key}: {pattern!r} fits no parameter; a regular '
          f'expression has to fit the whole of one of\n  {listed}'
        )
  if all(matching(options.frozen, told) is not None for told in names):
    raise errors.InputError(
      f'optimizer.frozen={options.frozen!r}: nothing is left to train of\n  '
      f'{listed}'
    )


def decayed(config):
  """Adds to each direction its parameter's weight decay, times that.

  `optimizer.weight_decays` name it; for other kernels it is
  `optimizer.weight_decay`, and nothing for the rest.
  """
  options = config.optimizer

  def decay(told):
    number = matching([pattern for pattern, _ in options.weight_decays], told)
    if number is not None:
      return options.weight_decays[number][1]
    return options.weight_decay if told.split('/')[-1] == DECAYED else 0.0

  def update(path, direction, param):
    rate = decay(name(path))
    return direction + rate * param if rate else direction

  return optax.stateless(
    lambda updates, params: jax.tree.map_with_path(update, updates, params)
  )


def scaled(config, rate):
  """Turns directions into updates: times the rate and its multiplier, down."""
  multipliers = config.optimizer.multipliers
  descend = optax.scale_by_learning_rate(rate)
  if not multipliers:
    return descend

  def multiply(path, update):
    number = matching([pattern for pattern, _ in multipliers], name(path))
    return update if number is None else multipliers[number][1] * update

  multiplied = optax.stateless(
    lambda updates, params: jax.tree.map_with_path(multiply, updates)
  )
  return optax.chain(multiplied, descend)


def by_layer(transform, stacked):
  """A stateless transformation of each parameter, of each layer by itself."""
  nothing = optax.EmptyState()

  def one(update, param):
    return transform.update(update, nothing, param)[0]

  def apply(path, update, param):
    of = jax.vmap(one) if name(path) in stacked else one
    return of(update, param)

  return optax.stateless(
    lambda updates, params: jax.tree.map_with_path(apply, updates, params)
  )


def _file(config):
  options = config.optimizer
  return config_lib.load('training/optimizers', options.name, 'optimizer.name')
