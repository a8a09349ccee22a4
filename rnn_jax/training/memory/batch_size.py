"""The batch that fits in a given memory.

What a training step needs of a device, by XLA's own account
(program.py), is about a + b rows. Two compilations of the longest row
give a and b, and the rows that the budget holds follow:

  rows = floor((budget - a) / b)

Where that line errs, more compilations close in on the answer, until so many
rows fit and the next larger batch does not. Shorter rows share the tokens of
such a batch. Nothing runs, so nothing can run out of memory; what other
programs of the device hold, the budget must leave out.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.parallel import hosts
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import program as program_memory

NAME = 'memory.json'
PROBES = 2, 6  # times the fewest rows there can be
GUESSES = 6  # batches that are compiled before halving takes over
FURTHEST = 100  # times the largest batch that is known; a line may err


class Budget(NamedTuple):
  """Bytes of each device, and what a message calls them: 'key=value'."""

  bytes: int
  name: str


def gib(number: float, key: str) -> Budget:
  """Returns the Budget of so many GiB, given as `key`."""
  return Budget(int(number * 2**30), f'{key}={number!r}')


def resolve(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  workdir: str | os.PathLike,
  multiple: int,
) -> config_lib.Config:
  """Returns the Config with `data.tokens_per_batch` for `data.memory_gib`.

  The number is kept in `workdir`: another compiler would find another one, and
  a resumed run must have the same batches.

  Raises:
    InputError: the budget is too small for the fewest rows, `multiple`.
  """
  if not config.data.memory_gib:
    return config
  path = pathlib.Path(workdir) / NAME
  kept = hosts.broadcast(
    json.loads(path.read_text()) if path.exists() else None
  )
  if kept is None:
    rows = rows_for_budget(config, tokenizer, multiple)
    # Other hosts may count other bytes: they use the first one's number.
    kept = hosts.broadcast({'tokens_per_batch': rows * config.data.length})
    if hosts.is_first():
      files.write_whole(path, json.dumps(kept) + '\n')
  return dataclasses.replace(
    config, data=dataclasses.replace(config.data, **kept)
  )


def rows_for_budget(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  multiple: int,
) -> int:
  """Returns the rows of `data.length` tokens that `data.memory_gib` holds.

  Raises:
    InputError: not even `multiple` of them.
  """
  programs = programs_lib.from_config(config, tokenizer)
  search = Search(programs, config.data.length, multiple)
  return search.largest(gib(config.data.memory_gib, 'data.memory_gib'))


class Search:
  """Batches of rows of one length, by what their training step needs."""

  def __init__(
    self, programs: programs_lib.Programs, length: int, multiple: int
  ):
    self._programs = programs
    self.length = length
    self.multiple = multiple
    self.memory = functools.cache(self._memory)

  def largest(self, budget: Budget) -> int:
    """Returns the rows, a multiple of `multiple`, that a budget holds.

    One `multiple` more needs more than the budget, by the compiler's account.

    Raises:
      InputError: not even `multiple` rows.
    """
    params, optimizer = state_bytes(self._programs, self.multiple)
    fixed = (
      f'{budget.name}: parameters and optimizer state need '
      f'{params + optimizer:,} bytes ({(params + optimizer) / 2**30:.3g} GiB)'
    )
    if params > budget.bytes:
      raise errors.InputError(f'{fixed}: give more, or a smaller model')
    times = search(lambda n: self.memory(n * self.multiple).total, budget.bytes)
    if not times:
      needed = self.memory(self.multiple).total / 2**30
      raise errors.InputError(
        f'{fixed}, and {self.multiple} row(s) of data.length={self.length} '
        f'tokens {needed:.3g} GiB with them: give more, or shorter rows'
      )
    return times * self.multiple

  def _memory(self, rows: int) -> program_memory.ProgramMemory:
    return program_memory.of(self._programs.compile_train(rows, self.length))


def state_bytes(programs: programs_lib.Programs, rows: int) -> tuple[int, int]:
  """Returns the bytes of (all parameters, the optimizer's state)."""
  state = jax.eval_shape(lambda: programs.init(0, rows))
  return tree_bytes(state.params), tree_bytes(state.opt_state)


def tree_bytes(tree: Any) -> int:
  """Returns the bytes of all arrays, or shapes of arrays, of a tree."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def search(bytes_of: Callable[[int], int], budget: int) -> int:
  """Returns the n >= 0 with bytes_of(n) <= budget < bytes_of(n + 1).

  Args:
    bytes_of: of n >= 1; it rises almost linearly and takes long to call.
    budget: bytes.
  """
  sizes = {n: bytes_of(n) for n in PROBES}
  while True:
    low = max((n for n in sizes if sizes[n] <= budget), default=0)
    over = [n for n in sizes if n > low]
    high = min(over) if over else None
    if high == low + 1:
      return low
    n = _guess(sizes, low, high, budget)
    sizes[n] = bytes_of(n)


def _guess(sizes, low, high, budget):
  """A number between low and high; None is no bound."""
  if len(sizes) > GUESSES + len(PROBES):
    return 2 * low if high is None else (low + high) // 2
  a, b = sorted(sizes, key=lambda n: abs(sizes[n] - budget))[:2]
  each = max((sizes[b] - sizes[a]) / (b - a), 1)
  n = max(a + int((budget - sizes[a]) // each), low + 1)
  return min(n, FURTHEST * max(sizes) if high is None else high - 1)
