"""The rules that all optimizers and schedules share."""

from typing import Any

from rnn_jax import errors
from rnn_jax.config import name_patterns

SHARDING = 'fsdp', 'expert', 'pipe', 'tensor'  # mesh axes that shard parameters
PATTERNS = ('multipliers', 'weight_decays', 'frozen')


def check(config: Any) -> None:
  """Checks the optimizer and the schedule of a Config.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  _check_patterns(config.optimizer)
  sharded = [axis for axis in SHARDING if getattr(config.mesh, axis) != 1]
  if config.optimizer.whole_matrices and sharded:
    errors.refuse(
      f'mesh.{sharded[0]}',
      getattr(config.mesh, sharded[0]),
      f'optimizer.name={config.optimizer.name!r} needs whole matrices: give 1 '
      'and shard only rows, by mesh.data, or use another optimizer',
    )


def _check_patterns(options):
  for key in PATTERNS:
    for given in getattr(options, key):
      pattern = given if isinstance(given, str) else given[0]
      name_patterns.check(f'optimizer.{key}', pattern)
  for pattern, value in options.multipliers:
    if value <= 0:
      errors.refuse(
        'optimizer.multipliers',
        (pattern, value),
        'give a number above 0, or name the parameters in optimizer.frozen',
      )
  for pattern, value in options.weight_decays:
    if value < 0:
      errors.refuse(
        'optimizer.weight_decays', (pattern, value), 'give 0 or more'
      )
