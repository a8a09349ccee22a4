"""The cheapest remat whose training step fits in a memory: remat.every='auto'.

Each of PLANS stores less than the one before and recomputes more. The step of
the largest batch is compiled with each, until its memory, as XLA reports
(system/target.py), is within remat.memory_gib. Nothing runs. Plans that
contradict the config, such as a schedule for a cell without steps, are skipped.
Numbers don't depend on the choice, so a resumed run may choose again.
"""

import math
from collections.abc import Iterable

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import resolve as resolve_lib
from rnn_jax.config import values
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.system import target
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import batch_size

PLANS = (
  {'every': 0},
  {'every': 'sqrt'},
  {'every': 0, 'layers': 1},
  {'every': 'sqrt', 'layers': 1},
  {'every': 8, 'schedule': 'binomial', 'layers': 1},
  {'every': 0, 'segment': 64},
  {'every': 'sqrt', 'segment': 64},
)


def resolve(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  shapes: Iterable[tuple[int, int]],
) -> config_lib.Config:
  """Returns the config with the first plan that fits in remat.memory_gib.

  Args:
    config: its remat.every is 'auto'.
    tokenizer: of the run.
    shapes: (rows, length) of all training batches.

  Raises:
    InputError: none fits; the message has the memory of the smallest.
  """
  budget = batch_size.gib(config.remat.memory_gib, 'remat.memory_gib')
  rows, length = max(shapes, key=lambda shape: shape[0] * shape[1])
  least = math.inf
  for candidate in filter(None, (_with(config, plan) for plan in PLANS)):
    programs = programs_lib.from_config(candidate, tokenizer)
    needed = target.memory(programs.compile_train(rows, length)).total
    if needed <= budget.bytes:
      return candidate
    least = min(least, needed)
  raise errors.InputError(
    f'{budget.name}: {rows} rows of {length} tokens need {least / 2**30:.3g} '
    'GiB with the remat that stores least: give more, or smaller batches'
  )


def _with(config, plan):
  """Returns the config with a plan, or None if they contradict each other."""
  plan = {f'remat.{key}': value for key, value in plan.items()}
  changed = resolve_lib.recorded(config, values.replaced(config, plan))
  try:
    config_lib.check(changed)
  except errors.InputError:
    return None
  return changed
