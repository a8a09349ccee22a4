"""The sections `pruning` and `distillation` of the config, and their rules."""

import dataclasses
import math
from typing import Any

from rnn_jax import errors

SCOPES = ('layer', 'global')


@dataclasses.dataclass(frozen=True)
class Pruning:
  """Setting the smallest numbers of matrices to 0: training/pruning.py."""

  sparsity: float = 0.0  # final fraction of zeros; 0: no pruning
  scope: str = 'layer'  # the same fraction in each matrix; or 'global'
  begin_step: int = 0
  end_step: int = 0  # when the sparsity is reached
  every: int = 50  # steps between prunings


@dataclasses.dataclass(frozen=True)
class Distillation:
  """A trained model's predictions as targets: training/distillation.py."""

  teacher: str = ''  # a run's work folder; '': none
  checkpoint: str = 'best'  # or 'latest', or a step
  alpha: float = 0.5  # weight of the text's loss; 1 - alpha: the teacher's
  temperature: float = 2.0


def check(config: Any) -> None:
  """Checks these sections of a Config.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  pruning = config.pruning
  if pruning.scope not in SCOPES:
    errors.refuse('pruning.scope', pruning.scope, f'choose one of {SCOPES}')
  if not 0 <= pruning.sparsity < 1:
    errors.refuse(
      'pruning.sparsity', pruning.sparsity, 'give a number in [0, 1)'
    )
  for key, least in (('begin_step', 0), ('every', 1)):
    if (value := getattr(pruning, key)) < least:
      errors.refuse(f'pruning.{key}', value, f'give {least} or more')
  if pruning.sparsity:
    _check_schedule(config)
  _check_distillation(config)


def _check_distillation(config):
  distillation, mesh = config.distillation, config.mesh
  if not 0 <= distillation.alpha <= 1:
    errors.refuse(
      'distillation.alpha', distillation.alpha, 'give a number in [0, 1]'
    )
  if distillation.temperature <= 0:
    errors.refuse(
      'distillation.temperature',
      distillation.temperature,
      'give a number above 0',
    )
  if not distillation.teacher:
    return
  for key, wrong, remedy in (
    ('task.name', not config.task.per_token, 'language_modeling'),
    ('remat.segment', config.remat.segment, 0),
    ('mesh.pipe', mesh.pipe != 1, 1),
    ('mesh.sequence', mesh.sequence != 1, 1),
    ('mesh.tensor', mesh.tensor != 1, 1),
  ):
    if wrong:
      section, _, name = key.partition('.')
      value = getattr(getattr(config, section), name)
      errors.refuse(
        key,
        value,
        f'not available with a distillation.teacher: give {remedy!r}',
      )


def _check_schedule(config):
  pruning, steps = config.pruning, config.train.steps
  before = steps or math.inf  # 0: not known yet, see training/epochs.py
  if not pruning.begin_step < pruning.end_step < before:
    errors.refuse(
      'pruning.end_step',
      pruning.end_step,
      f'give a step after pruning.begin_step={pruning.begin_step} and before '
      f'train.steps={steps}',
    )
  if elsewhere := config.optimizer.elsewhere:
    errors.refuse(
      *elsewhere,
      'it takes gradients at points that are not pruned: change it, or '
      'give pruning.sparsity=0',
    )
  if not config.model.branch_scale:
    errors.refuse(
      'model.branch_scale',
      config.model.branch_scale,
      'with pruning, matrices that start at 0 would stay 0: give a small '
      'number',
    )
