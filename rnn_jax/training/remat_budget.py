"""The cheapest remat whose training step fits in a memory: remat.every='auto'.

Each rung of LADDER computes more again, and keeps less, than the one before.
The step of the largest batch is compiled with each, until its memory, by XLA's
own account (program_memory.py), is within remat.memory_gib. Nothing runs. Rungs
that a config refuses, as a schedule for a cell without steps, are left out.
Numbers do not depend on the choice, so that a resumed run may choose anew.
"""

import dataclasses
import math

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import memory
from rnn_jax.training import program_memory
from rnn_jax.training import step as step_lib

LADDER = (
  {'every': 0},
  {'every': 'sqrt'},
  {'every': 0, 'layers': 1},
  {'every': 'sqrt', 'layers': 1},
  {'every': 8, 'schedule': 'binomial', 'layers': 1},
  {'every': 0, 'segment': 64},
  {'every': 'sqrt', 'segment': 64},
)


def resolve(config, tokenizer, shapes) -> config_lib.Config:
  """Returns the Config with the first rung that remat.memory_gib holds.

  Args:
    config: its remat.every is 'auto'.
    tokenizer: of the run.
    shapes: (rows, length) of all training batches.

  Raises:
    InputError: none fits; the message has what the smallest one needs.
  """
  budget = memory.gib(config.remat.memory_gib, 'remat.memory_gib')
  rows, length = max(shapes, key=lambda shape: shape[0] * shape[1])
  least = math.inf
  for tried in filter(None, (_with(config, rung) for rung in LADDER)):
    steps = step_lib.from_config(tried, tokenizer)
    needed = program_memory.of(steps.compile_train(rows, length)).total
    if needed <= budget.bytes:
      return tried
    least = min(least, needed)
  raise errors.InputError(
    f'{budget.name}: {rows} rows of {length} tokens need {least / 2**30:.3g} '
    'GiB with the least that is kept: give more, or smaller batches'
  )


def told(config) -> str:
  """Returns what was chosen, as flags would have it."""
  parts = dataclasses.asdict(config.remat)
  chosen = [f'remat.{key}={value!r}' for key, value in parts.items() if value]
  return ', '.join(chosen)


def _with(config, rung):
  """The config with a rung, or None where the two exclude each other."""
  remat = dataclasses.replace(config.remat, memory_gib=0.0, **rung)
  changed = dataclasses.replace(config, remat=remat)
  try:
    return config_lib.parse(config_lib.to_dict(changed))
  except errors.InputError:
    return None
