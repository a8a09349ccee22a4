"""The sections `pruning` and `distillation` of the config, and their rules."""

import dataclasses
import math
from typing import Any

from rnn_jax import errors
from rnn_jax.config.values import option

SCOPES = 'layer', 'global'
SPARSITY, TEACHER = 'pruning.sparsity', 'distillation.teacher'


@dataclasses.dataclass(frozen=True)
class Pruning:
  """Setting the smallest numbers of matrices to 0: training/pruning.py."""

  # Final fraction of zeros; 0: no pruning.
  sparsity: float = option(0.0, below=1)
  # The same fraction in each matrix; or 'global'.
  scope: str = option('layer', choices=SCOPES, needs=SPARSITY)
  begin_step: int = option(0, minimum=0, needs=SPARSITY)
  # When the sparsity is reached.
  end_step: int = option(0, minimum=0, needs=SPARSITY)
  every: int = option(50, minimum=1, needs=SPARSITY)  # steps between prunings

  def check(self, config: Any) -> None:
    """Checks the schedule, and what would keep numbers from being pruned.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if not self.sparsity:
      return
    steps = config.train.steps
    before = steps or math.inf  # 0: not known yet, see training/epochs.py
    if not self.begin_step < self.end_step < before:
      errors.refuse(
        'pruning.end_step',
        self.end_step,
        f'give a step after pruning.begin_step={self.begin_step} and before '
        f'train.steps={steps}',
      )
    if elsewhere := config.optimizer.elsewhere:
      key, value = elsewhere
      errors.refuse(
        key,
        value,
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


@dataclasses.dataclass(frozen=True)
class Distillation:
  """A trained model's predictions as targets: training/distillation.py."""

  teacher: str = option(  # a run's work folder; '': none
    '',
    excludes=(
      'task.per_token=False',
      'remat.segment',
      'mesh.pipe!=1',
      'mesh.sequence!=1',
      'mesh.tensor!=1',
    ),
  )
  checkpoint: str = option('best', needs=TEACHER)  # or 'latest', or a step
  # Weight of the text's loss; 1 - alpha: the teacher's.
  alpha: float = option(0.5, minimum=0, maximum=1, needs=TEACHER)
  temperature: float = option(2.0, above=0, needs=TEACHER)
