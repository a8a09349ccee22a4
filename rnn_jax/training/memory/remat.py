"""The cheapest remat whose training step fits in a memory: remat.every='auto'.

Each rung of LADDER keeps less than the one before and recomputes more. The step
of the largest batch is compiled with each, until its memory, by XLA's own
account (program.py), is within remat.memory_gib. Nothing runs. Rungs that a
config refuses, as a schedule for a cell without steps, are left out. Numbers do
not depend on the choice, so a resumed run may choose again.
"""

import dataclasses
import math
from collections.abc import Iterable

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import batch_size
from rnn_jax.training.memory import program as program_memory

LADDER = (
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
  """Returns the Config with the first rung that remat.memory_gib holds.

  Args:
    config: its remat.every is 'auto'.
    tokenizer: of the run.
    shapes: (rows, length) of all training batches.

  Raises:
    InputError: none fits; the message has what the smallest one needs.
  """
  budget = batch_size.gib(config.remat.memory_gib, 'remat.memory_gib')
  rows, length = max(shapes, key=lambda shape: shape[0] * shape[1])
  least = math.inf
  for tried in filter(None, (_with(config, rung) for rung in LADDER)):
    programs = programs_lib.from_config(tried, tokenizer)
    needed = program_memory.of(programs.compile_train(rows, length)).total
    if needed <= budget.bytes:
      return tried
    least = min(least, needed)
  raise errors.InputError(
    f'{budget.name}: {rows} rows of {length} tokens need {least / 2**30:.3g} '
    'GiB with the least that is kept: give more, or smaller batches'
  )


def describe(config: config_lib.Config) -> str:
  """Returns what was chosen, in the form of flags."""
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
