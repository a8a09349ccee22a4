"""The section `model.experts` of the config, and its rules."""

import dataclasses
from typing import Any

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.config.values import option


@dataclasses.dataclass(frozen=True)
class Experts:
  """MLPs of a layer, of which each token runs some: models/experts.py."""

  count: int = option(0, least=0)  # 0: one MLP, which all tokens run
  per_token: int = option(2, least=1)  # experts that run per token
  # Weight of the loss that evens out how many tokens they get.
  balance: float = option(0.01, least=0)
  normalized: bool = True  # the gates of a token's experts sum to 1
  scores: str = option('softmax', choices='models.experts:SCORES')
  correction: bool = False  # the choice is by scores plus a bias per expert
  groups: int = option(1, least=1)  # of experts, of which a token chooses some
  groups_per_token: int = option(1, least=1)
  gate_scale: float = option(1.0, above=0)  # of the gates, once they sum to 1
  shared_width: int = option(0, least=0)  # of an expert of all tokens; 0: none
  shared_gate: bool = True  # it has a gate
  dense_layers: int = option(0, least=0)  # the first ones, which have an MLP
  dense_width: int = option(0, least=0)  # of that MLP


def check(config: Any) -> None:
  """Checks the section against the rest of a Config.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  options, model = config.model.experts, config.model
  if not options.count:
    _check_absent(config)
    return
  if options.count == 1:
    errors.refuse(
      'model.experts.count', 1, 'a router needs a choice: give 2 or more, or 0'
    )
  if options.per_token > options.count:
    errors.refuse(
      'model.experts.per_token',
      options.per_token,
      f'give at most model.experts.count={options.count}',
    )
  if options.per_token == 1 and not options.normalized:
    errors.refuse(
      'model.experts.normalized',
      False,
      'it has no effect with model.experts.per_token=1: leave it at True',
    )
  _check_groups(options)
  if not options.shared_width and not options.shared_gate:
    _refuse(options, 'shared_gate', 'shared_width=0 has none: leave it at True')
  _check_dense(options, model)
  if not model.mlp_width:
    errors.refuse(
      'model.experts.count',
      options.count,
      'model.mlp_width=0 has no MLP: give the width of an expert',
    )
  if model.mlp in values.choices_of('models.mlp:SHIFTED'):
    errors.refuse(
      'model.mlp',
      model.mlp,
      'it reads the step before, and tokens choose their experts: choose '
      "another, as 'swiglu'",
    )
  if model.biases:
    errors.refuse('model.biases', True, 'experts have none: give False')
  if 'hidden' in config.remat.keep:
    errors.refuse(
      'remat.keep',
      config.remat.keep,
      "experts always compute 'hidden' again: leave it out",
    )
  if config.mesh.pipe != 1:
    errors.refuse(
      'mesh.pipe',
      config.mesh.pipe,
      'not available with model.experts: give 1, and mesh.expert',
    )
  if options.balance:
    _check_balance(config)


def _check_groups(options):
  if options.groups == 1:
    if options.groups_per_token != 1:
      _refuse(options, 'groups_per_token', 'groups=1 leaves no choice: give 1')
    return
  size, rest = divmod(options.count, options.groups)
  if rest or size < 2:
    _refuse(
      options,
      'groups',
      f'it must divide model.experts.count={options.count} into groups of 2 or '
      'more',
    )
  if options.groups_per_token >= options.groups:
    _refuse(
      options,
      'groups_per_token',
      f'give less than model.experts.groups={options.groups}, or 1 for both',
    )
  if options.per_token > (most := options.groups_per_token * size):
    _refuse(options, 'per_token', f'a token chooses from {most} experts')


def _check_dense(options, model):
  layers = options.dense_layers
  if bool(layers) != bool(options.dense_width):
    _refuse(
      options,
      'dense_width',
      f'model.experts.dense_layers={layers}: give both, or 0 for both',
    )
  if layers > (most := len(model.pattern)):
    _refuse(
      options,
      'dense_layers',
      f'only a period of model.cells can begin with them: give up to {most}',
    )
  if layers >= model.layers:
    _refuse(
      options,
      'dense_layers',
      f'no layer of model.layers={model.layers} has experts: give less',
    )
  if layers and model.shared_layers:
    errors.refuse(
      'model.shared_layers',
      True,
      f'model.experts.dense_layers={layers} differ from the others: give False',
    )


def _refuse(options, key, remedy):
  errors.refuse(f'model.experts.{key}', getattr(options, key), remedy)


def _check_absent(config):
  for field in dataclasses.fields(config.model.experts):
    value = getattr(config.model.experts, field.name)
    if value != field.default:
      errors.refuse(
        f'model.experts.{field.name}',
        value,
        'it has no effect with model.experts.count=0: leave it at '
        f'{field.default!r}',
      )
  if config.mesh.expert != 1:
    errors.refuse(
      'mesh.expert',
      config.mesh.expert,
      'model.experts.count=0 has nothing to share: give 1, and mesh.data',
    )


def _check_balance(config):
  if config.remat.segment:
    errors.refuse(
      'remat.segment',
      config.remat.segment,
      'model.experts.balance is of whole rows: give 0 for one of them',
    )
  if config.task.columns:
    errors.refuse(
      'model.experts.balance',
      config.model.experts.balance,
      f'task.name={config.task.name!r} does not add it to its loss: give 0',
    )
