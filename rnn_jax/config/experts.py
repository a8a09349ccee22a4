"""The section `model.experts` of the config, and its rules."""

import dataclasses
from typing import Any

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.config.values import option

COUNT = 'model.experts.count'


@dataclasses.dataclass(frozen=True)
class Experts:
  """MLPs of a layer, of which each token runs some: models/experts.py."""

  count: int = option(  # 0: one MLP, which all tokens run
    0, minimum=0, needs='model.mlp_width', excludes=('model.biases',)
  )
  # Experts that run per token.
  per_token: int = option(2, minimum=1, needs=COUNT)
  # Weight of the loss that evens out how many tokens they get.
  balance: float = option(0.01, minimum=0, needs=COUNT)
  # The gates of a token's experts sum to 1.
  normalized: bool = option(True, needs=(COUNT, 'model.experts.per_token>1'))
  scores: str = option('softmax', choices='models.experts:SCORES', needs=COUNT)
  # The choice is by scores plus a bias per expert.
  correction: bool = option(False, needs=COUNT)
  # Of experts, of which a token chooses some.
  groups: int = option(1, minimum=1, needs=COUNT)
  groups_per_token: int = option(
    1, minimum=1, needs=(COUNT, 'model.experts.groups>1')
  )
  # Of the gates, once they sum to 1.
  gate_scale: float = option(1.0, above=0, needs=COUNT)
  shared_width: int = option(  # of an expert of all tokens; 0: none
    0, minimum=0, needs=COUNT
  )
  # It has a gate.
  shared_gate: bool = option(True, needs=(COUNT, 'model.experts.shared_width'))
  # The first ones, which have an MLP.
  dense_layers: int = option(
    0, minimum=0, needs=COUNT, excludes='model.shared_layers'
  )
  # Of that MLP, and of those of model.mlps.
  dense_width: int = option(0, minimum=0, needs=COUNT)

  def check(self, config: Any) -> None:
    """Checks the section against the rest of a Config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    model = config.model
    if not self.count:
      return
    if self.count == 1:
      errors.refuse(
        'model.experts.count',
        1,
        'a router needs a choice: give 2 or more, or 0',
      )
    if self.per_token > self.count:
      errors.refuse(
        'model.experts.per_token',
        self.per_token,
        f'give at most model.experts.count={self.count}',
      )
    _check_groups(self)
    _check_dense(self, model)
    if model.mlp in values.choices_of('models.mlp:SHIFTED'):
      errors.refuse(
        'model.mlp',
        model.mlp,
        'it reads the step before, and tokens choose their experts: choose '
        "another, as 'swiglu'",
      )
    if 'hidden' in config.remat.keep:
      errors.refuse(
        'remat.keep',
        config.remat.keep,
        "experts always compute 'hidden' again: leave it out",
      )
    if self.balance:
      _check_balance(config)


def _check_groups(options):
  if options.groups == 1:
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
  layers, mlps = options.dense_layers, model.mlps
  if layers and mlps:
    _refuse(
      options, 'dense_layers', f'model.mlps={mlps!r} says which layers: give 0'
    )
  if bool(layers or 'mlp' in mlps) != bool(options.dense_width):
    _refuse(
      options,
      'dense_width',
      f"model.mlps={mlps!r}: give it for 'mlp', and only for that"
      if mlps
      else f'model.experts.dense_layers={layers}: give both, or 0 for both',
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


def _refuse(options, key, remedy):
  errors.refuse(f'model.experts.{key}', getattr(options, key), remedy)


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
