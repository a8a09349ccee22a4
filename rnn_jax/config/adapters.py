"""The section `adapters` of the config, and its rules."""

import dataclasses
from typing import Any

from rnn_jax.config import name_patterns
from rnn_jax.config.values import option

RANK = 'adapters.rank'
BASES = 'float32', 'int8', 'int4'  # formats of frozen matrices


@dataclasses.dataclass(frozen=True)
class Adapters:
  """Low-rank changes of another run's frozen model: models/adapters.py."""

  rank: int = option(  # 0: none, all parameters are trained
    0,
    minimum=0,
    excludes=(
      'optimizer.frozen',
      'pruning.sparsity',
      'distillation.teacher',
      'mesh.compression',
      'mesh.expert!=1',
      'mesh.pipe!=1',
      'mesh.sequence!=1',
      'mesh.tensor!=1',
    ),
  )
  alpha: float = option(16.0, needs=RANK)  # a change times alpha / rank
  # Of the inputs of each change. Shards would leave out the same rows.
  dropout: float = option(0.0, below=1, needs=RANK, excludes='mesh.fsdp!=1')
  # Patterns of names of matrices.
  targets: tuple[str, ...] = option(('.*/kernel',), needs=RANK)
  # Patterns of parameters that train whole.
  trained: tuple[str, ...] = option((), needs=RANK)
  # Of the frozen matrices.
  base: str = option('float32', choices=BASES, needs=RANK)

  def check(self, config: Any) -> None:
    """Checks the patterns.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    del config
    for key in 'targets', 'trained':
      for pattern in getattr(self, key):
        name_patterns.check(f'adapters.{key}', pattern)
