"""States of texts' beginnings, so that a shared one is read once.

A state is stored under its chunk's key (reading.py), a chained digest: one
look-up finds a state whatever the text's length, where a trie over tokens would
walk through all of them, and entries are independent, so that the one used
longest ago can go first. A text's longest stored beginning is what is looked up
from its last chunk backwards. The store is limited by bytes on the device.
"""

import collections
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import jax


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """What a model knows after a text: its state and the next token's logits."""

  state: Any
  logits_1xV: jax.Array

  @property
  def nbytes(self) -> int:
    """Its size."""
    return sum(x.nbytes for x in jax.tree.leaves((self.state, self.logits_1xV)))


@dataclasses.dataclass
class Counts:
  """What the store did and holds."""

  hits: int = 0  # texts of which it had a beginning
  misses: int = 0
  evictions: int = 0
  entries: int = 0
  nbytes: int = 0


class Store:
  """Entries by key, at most `limit` bytes; 0: none. Thread-safe."""

  def __init__(self, limit: int) -> None:
    self.limit = limit
    self._entries: collections.OrderedDict[bytes, Entry]
    self._entries = collections.OrderedDict()
    self._lock = threading.Lock()
    self._counts = Counts()

  def longest(self, keys: Sequence[bytes]) -> tuple[int, Entry | None]:
    """Returns (chunks that needn't be read, the state after them or None).

    Args:
      keys: of a text's chunks; b'' where the state after one isn't stored.
    """
    with self._lock:
      for count in range(len(keys), 0, -1):
        if entry := self._entries.get(keys[count - 1]):
          self._entries.move_to_end(keys[count - 1])
          self._counts.hits += 1
          return count, entry
      self._counts.misses += 1
      return 0, None

  def put(self, key: bytes, entry: Entry) -> None:
    """Stores an entry; those used longest ago make room for it."""
    size = entry.nbytes
    with self._lock:
      if size > self.limit or key in self._entries:
        return
      self._entries[key] = entry
      self._counts.nbytes += size
      while self._counts.nbytes > self.limit:
        _, oldest = self._entries.popitem(last=False)
        self._counts.nbytes -= oldest.nbytes
        self._counts.evictions += 1

  def clear(self) -> None:
    """Empties the store."""
    with self._lock:
      self._entries.clear()
      self._counts.nbytes = 0

  @property
  def counts(self) -> Counts:
    """A copy of the counts."""
    with self._lock:
      return dataclasses.replace(self._counts, entries=len(self._entries))
