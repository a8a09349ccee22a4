"""The rules that all optimizers and schedules share."""

import re
from typing import Any

from rnn_jax import errors

CUTTING = 'fsdp', 'pipe', 'tensor'  # axes that share parameters
PATTERNS = ('multipliers', 'weight_decays', 'frozen')


def check(config: Any) -> None:
  """Checks what a Config says of its optimizer and its schedule.

  Raises:
    InputError: names the key, the value and the remedy.
  """
  _check_patterns(config.optimizer)
  warmup, steps = config.schedule.warmup_steps, config.train.steps
  if warmup > steps:
    errors.refuse(
      'schedule.warmup_steps', warmup, f'give at most train.steps={steps}'
    )
  cut = [axis for axis in CUTTING if getattr(config.mesh, axis) != 1]
  if config.optimizer.whole_matrices and cut:
    errors.refuse(
      f'mesh.{cut[0]}',
      getattr(config.mesh, cut[0]),
      f'optimizer.name={config.optimizer.name!r} needs whole matrices: give 1 '
      'and share only rows, mesh.data, or take another optimizer',
    )


def _check_patterns(options):
  for key in PATTERNS:
    for given in getattr(options, key):
      pattern = given if isinstance(given, str) else given[0]
      try:
        re.compile(pattern)
      except re.error as error:
        errors.refuse(
          f'optimizer.{key}', pattern, f'no regular expression ({error})'
        )
  for pattern, value in options.multipliers:
    if value <= 0:
      errors.refuse(
        'optimizer.multipliers',
        (pattern, value),
        'give a number above 0; what is not to change goes to optimizer.frozen',
      )
  for pattern, value in options.weight_decays:
    if value < 0:
      errors.refuse(
        'optimizer.weight_decays', (pattern, value), 'give 0 or more'
      )
