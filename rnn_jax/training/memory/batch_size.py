"""The largest batch that fits in a given memory.

A training step needs about a + b rows bytes of a device, as XLA reports
(system/target.py). Two compilations with the longest rows give a and b, and

  rows = floor((budget - a) / b)

Where this line is wrong, more compilations narrow the answer down, until a
batch fits and the next larger one doesn't. Batches of shorter rows have as many
tokens. Nothing runs, so nothing can run out of memory; the budget must leave
out what other programs hold on the device.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.parallel import hosts
from rnn_jax.system import target
from rnn_jax.training import programs as programs_lib

PROBES = 2, 6  # times the smallest number of rows
GUESSES = 6  # batches that are compiled before bisection takes over
FURTHEST = 100  # times the largest batch so far: the line may be wrong


class Budget(NamedTuple):
  """Bytes of each device, and their name in messages: 'key=value'."""

  bytes: int
  name: str


def gib(number: float, key: str) -> Budget:
  """Returns the Budget of a number of GiB, given as `key`."""
  return Budget(int(number * 2**30), f'{key}={number!r}')


def resolve(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  multiple: int,
) -> config_lib.Config:
  """Returns the Config with `data.tokens_per_batch` for `data.memory_gib`.

  Raises:
    InputError: `multiple` rows, the fewest, don't fit in the budget.
  """
  rows = rows_for_budget(config, tokenizer, multiple)
  # Other hosts may have other bytes: they use the first one's number.
  tokens = hosts.broadcast(rows * config.data.length)
  return values.replaced(config, {'data.tokens_per_batch': tokens})


def rows_for_budget(
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
  multiple: int,
) -> int:
  """Returns the rows of `data.length` tokens that `data.memory_gib` holds.

  Raises:
    InputError: `multiple` rows, the fewest, don't fit.
  """
  programs = programs_lib.from_config(config, tokenizer)
  search = Search(programs, config.data.length, multiple)
  return search.largest(gib(config.data.memory_gib, 'data.memory_gib'))


class Search:
  """The search for the largest batch of rows of one length."""

  def __init__(
    self, programs: programs_lib.Programs, length: int, multiple: int
  ) -> None:
    self._programs = programs
    self.length = length
    self.multiple = multiple
    self.memory = functools.cache(self._memory)

  def largest(self, budget: Budget) -> int:
    """Returns the largest multiple of `multiple` rows that a budget holds.

    Raises:
      InputError: `multiple` rows, the fewest, don't fit.
    """
    params, optimizer = state_bytes(self._programs)
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

  def _memory(self, rows: int) -> target.Memory:
    return target.memory(self._programs.compile_train(rows, self.length))


def state_bytes(programs: programs_lib.Programs) -> tuple[int, int]:
  """Returns the bytes of (all parameters, the optimizer's state)."""
  state = programs.states.like()
  return tree_bytes(state.params), tree_bytes(state.opt_state)


def tree_bytes(tree: Any) -> int:
  """Returns the bytes of a tree of arrays or of their shapes."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def search(bytes_of: Callable[[int], int], budget: int) -> int:
  """Returns the n >= 0 with bytes_of(n) <= budget < bytes_of(n + 1).

  Args:
    bytes_of: bytes for n >= 1; rises almost linearly and is slow.
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
  """Returns a number between low and high; None: without an upper bound."""
  if len(sizes) > GUESSES + len(PROBES):
    return 2 * low if high is None else (low + high) // 2
  a, b = sorted(sizes, key=lambda n: abs(sizes[n] - budget))[:2]
  each = max((sizes[b] - sizes[a]) / (b - a), 1)
  n = max(a + int((budget - sizes[a]) // each), low + 1)
  return min(n, FURTHEST * max(sizes) if high is None else high - 1)
