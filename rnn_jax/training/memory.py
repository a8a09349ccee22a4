"""The batch that fits in a given memory.

What a training step needs of a device, by XLA's own account (arguments and
temporaries of the compiled program), is about a + b rows. Two compilations of
the longest row give a and b, and the rows that the budget holds follow:

  rows = floor((budget - a) / b)

They are compiled as well, and fewer are taken while they need more. Shorter
rows share the tokens of such a batch. Nothing runs, so nothing can run out of
memory; what other programs of the device hold, the budget must leave out.
"""

import dataclasses
import json
import os
import pathlib

from rnn_jax import errors
from rnn_jax import files
from rnn_jax.training import step as step_lib

NAME = 'memory.json'
PROBES = 2, 6  # times the fewest rows there can be


def resolve(config, tokenizer, workdir: str | os.PathLike, multiple: int):
  """Returns the Config with `data.tokens_per_batch` for `data.memory_gib`.

  The number is kept in `workdir`: another compiler would find another one, and
  a resumed run must have the same batches.

  Raises:
    InputError: the budget is too small for the fewest rows, `multiple`.
  """
  if not config.data.memory_gib:
    return config
  path = pathlib.Path(workdir) / NAME
  if not path.exists():
    rows = rows_for_budget(config, tokenizer, multiple)
    kept = {'tokens_per_batch': rows * config.data.length}
    files.write_whole(path, json.dumps(kept) + '\n')
  kept = json.loads(path.read_text())
  return dataclasses.replace(
    config, data=dataclasses.replace(config.data, **kept)
  )


def rows_for_budget(config, tokenizer, multiple: int) -> int:
  """Returns the rows of `data.length` tokens that `data.memory_gib` holds.

  Raises:
    InputError: not even `multiple` of them.
  """
  steps = step_lib.from_config(config, tokenizer)
  length, gib = config.data.length, config.data.memory_gib
  few, many = (multiple * n for n in PROBES)
  least, most = (steps.train_bytes(rows, length) for rows in (few, many))
  each = max(most - least, 1) / (many - few)
  rows = few + int((gib * 2**30 - least) / each)
  rows = rows // multiple * multiple
  while rows > 0 and steps.train_bytes(rows, length) > gib * 2**30:
    rows -= max(rows // 32 // multiple, 1) * multiple
  if rows < multiple:
    needed = (least - (few - multiple) * each) / 2**30
    raise errors.InputError(
      f'data.memory_gib={gib!r}: {multiple} row(s) of data.length={length} '
      f'tokens need about {needed:.3g}: give more, or shorter rows'
    )
  return rows
