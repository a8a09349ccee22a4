"""The section `adapters` of the config, and its rules."""

import dataclasses
from typing import Any

from rnn_jax import errors
from rnn_jax.config import name_patterns


@dataclasses.dataclass(frozen=True)
class Adapters:
  """Low-rank changes of another run's frozen model: models/adapters.py."""

  rank: int = 0  # 0: none, all parameters are trained
  alpha: float = 16.0  # a change is multiplied by alpha / rank
  dropout: float = 0.0  # of the inputs of each change
  targets: tuple[str, ...] = ('.*/kernel',)  # patterns of names of matrices
  trained: tuple[str, ...] = ()  # patterns of parameters that train whole
  base: str = 'float32'  # of the frozen matrices, or 'int8'


BASES = 'float32', 'int8'


def check(config: Any) -> None:
  """Checks the section of a Config.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  options = config.adapters
  if options.rank < 0:
    errors.refuse('adapters.rank', options.rank, 'give 0 or more')
  if not options.rank:
    for field in dataclasses.fields(options):
      value = getattr(options, field.name)
      if value != field.default:
        errors.refuse(
          f'adapters.{field.name}',
          value,
          'it has no effect with adapters.rank=0: give a rank, such as 8',
        )
    return
  if not 0 <= options.dropout < 1:
    errors.refuse(
      'adapters.dropout', options.dropout, 'give a number in [0, 1)'
    )
  if options.base not in BASES:
    errors.refuse('adapters.base', options.base, f'choose one of {BASES}')
  for key in 'targets', 'trained':
    for pattern in getattr(options, key):
      name_patterns.check(f'adapters.{key}', pattern)
  _check_alternatives(config)


def _check_alternatives(config):
  mesh, options = config.mesh, config.adapters
  for key, wrong, remedy in (
    ('optimizer.frozen', config.optimizer.frozen, ()),
    ('pruning.sparsity', config.pruning.sparsity, 0.0),
    ('distillation.teacher', config.distillation.teacher, ''),
    ('mesh.compression', mesh.compression, ''),
    *(
      (f'mesh.{axis}', getattr(mesh, axis) != 1, 1)
      for axis in ('expert', 'pipe', 'sequence', 'tensor')
    ),
  ):
    if wrong:
      section, _, name = key.partition('.')
      errors.refuse(
        key,
        getattr(getattr(config, section), name),
        f'not available with adapters.rank: give {remedy!r}',
      )
  if options.dropout and mesh.fsdp != 1:
    errors.refuse(
      'adapters.dropout',
      options.dropout,
      f'not available with mesh.fsdp={mesh.fsdp}, as each device would leave '
      'out the same rows of its share: give 0',
    )
