"""The streams that are served: of each its facts, and a row of one array.

    table.restore()            those of the store
    table.find(key)            a stream without its carry, its slot
    slot = table.begin(key)    a new one's slot
    table.put(...)             what streams have become
    table.write(...)           the same, into the store

A slot is the row of a stream's carry. One thread changes the table; `get`,
`find` and `ids` may be called from any.
"""

import threading
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import series_rows
from rnn_jax.inference import series_streams
from rnn_jax.serving import records
from rnn_jax.serving import stream_bytes
from rnn_jax.serving import stream_store

TOGETHER = 1024  # streams that are restored at once
Key = stream_store.Key


class UnknownStreamError(errors.InputError):
  """The owner has no stream of this id."""


class OutdatedStreamError(errors.InputError):
  """A stream's state is damaged, or of another model."""


class Entry(NamedTuple):
  """A stream that is served.

  Attributes:
    stream: without its carry.
    slot: of the carry.
    journal: readings since its state was kept.
  """

  stream: series_streams.Stream
  slot: int
  journal: int


class Table:
  """See the module's docstring.

  Args:
    model: reads.
    digest: of the model; a stream of another one isn't continued.
    most: streams.
    store: of streams; None: they end with the process.
  """

  def __init__(
    self,
    model: series_streams.StreamReader,
    digest: str,
    most: int,
    store: stream_store.Store | None = None,
  ) -> None:
    self._model, self._digest, self._most = model, digest, most
    self._reader, self._store = model.reader, store
    self._entries: dict[Key, Entry] = {}
    self._lost: dict[Key, str] = {}  # why a stream isn't served
    self._new: set[Key] = set()  # that are being begun
    self._lock = threading.Lock()
    self.carry = self._reader.take(self._reader.fresh, np.array([0]))
    self._free = [0]  # slots

  def __len__(self) -> int:
    return len(self._entries)

  def __contains__(self, key: Key) -> bool:
    return key in self._entries

  def find(self, key: Key) -> Entry:
    """Returns a stream.

    Raises:
      UnknownStreamError: there is none.
      OutdatedStreamError: its state can't be used.
    """
    entry = self._entries.get(key)
    if entry is not None:
      return entry
    if why := self._lost.get(key):
      raise OutdatedStreamError(f'stream={key[1]!r}: {why}')
    raise UnknownStreamError(
      f'stream={key[1]!r}: there is no such stream: begin it with PUT and its '
      'history; GET /v1/streams lists yours'
    )

  def get(self, key: Key) -> series_streams.Stream:
    """Returns a stream with its carry. Raises as `find`."""
    with self._lock:
      stream, slot, _ = self.find(key)
      carry = self._reader.take(self.carry, np.array([slot]))
    return stream._replace(carry=carry)

  def ids(self, owner: str) -> list[str]:
    """Returns the ids of an owner's streams, those that can't be used too."""
    keys = [*self._entries, *self._lost]
    return sorted(name for own, name in keys if own == owner)

  def begin(self, key: Key) -> int:
    """Returns a slot of which nothing was read, for a stream that begins.

    Raises:
      QuotaError: there are as many streams as there may be.
    """
    count = len(self._entries) + len(self._new)
    if key not in self._entries:
      if count >= self._most:
        raise records.QuotaError(
          f'this server has {count:,} streams, as many as it may (--streams): '
          'delete some'
        )
      self._new.add(key)
    (slot,) = self._allot(1)
    self._reader.put(self.carry, np.array([slot]), self._reader.fresh)
    return slot

  def end(self, key: Key, slot: int, failed: bool) -> None:
    """Ends what `begin` began; where it failed, the slot is free again."""
    self._new.discard(key)
    if failed:
      self._free.append(slot)

  def put(
    self,
    slots_B: np.ndarray,
    rows: Sequence[series_rows.Part],
    entries: Mapping[Key, Entry],
  ) -> None:
    """Takes what streams have become.

    Args:
      slots_B: of the rows.
      rows: of Reader.read.
      entries: of those streams that are served from now on.
    """
    with self._lock:
      self._reader.put_parts(self.carry, slots_B, rows)
      for key, entry in entries.items():
        old = self._entries.get(key)
        if old is not None and old.slot != entry.slot:
          self._free.append(old.slot)
        self._lost.pop(key, None)
        self._entries[key] = entry

  def remove(self, key: Key) -> None:
    """Removes a stream. Raises UnknownStreamError."""
    entry = None if key in self._lost else self.find(key)
    self.write(removed=[key])
    self._lost.pop(key, None)
    if entry is not None:
      del self._entries[key]
      self._free.append(entry.slot)

  def write(
    self,
    states: Sequence[tuple[Key, bytes]] = (),
    parts: Sequence[tuple[Key, int, bytes]] = (),
    removed: Iterable[Key] = (),
  ) -> None:
    """Writes to the store, if there is one; arguments as of Store.write."""
    if self._store is not None and (states or parts or removed):
      self._store.write(self._digest, states, parts, removed)

  def restore(self) -> None:
    """Reads the store."""
    if self._store is None:
      return
    found = []
    like = stream_bytes.like(self._model)
    for kept in self._store.read():
      if kept.model != self._digest:
        self._lost[kept.key] = (
          'its state is of other parameters: begin it again with its history'
        )
      elif (stream := stream_bytes.load(kept.state, like)) is None:
        self._lost[kept.key] = (
          'its state is damaged: begin it again with its history'
        )
      else:
        stream, rest_NxT = stream_bytes.replay(stream, kept.parts)
        found.append((kept.key, stream, rest_NxT))
    for first in range(0, len(found), TOGETHER):
      self._read_again(found[first : first + TOGETHER])

  def _read_again(self, found):
    """Takes streams that read what they had read since they were kept."""
    keys, streams, rests = zip(*found, strict=True)
    slots = self._allot(len(found))
    carry = self._reader.join([stream.carry for stream in streams])
    streams, rows = self._model.read_rows(streams, carry, rests)
    entries = {
      key: Entry(stream._replace(carry=None), slot, len(rest_NxT))
      for key, stream, slot, rest_NxT in zip(
        keys, streams, slots, rests, strict=True
      )
    }
    self.put(np.array(slots), rows, entries)

  def close(self) -> None:
    """Closes the store."""
    if self._store is not None:
      self._store.close()

  @property
  def state_bytes(self) -> int:
    """The size of a stream's state."""
    return sum(x.nbytes for x in jax.tree.leaves(self._reader.fresh))

  def _allot(self, count):
    """Returns free slots, of which there are made more if need be."""
    while len(self._free) < count:
      size = len(self.carry.x_BxD)
      self.carry = self._reader.join([self.carry] * 2)
      self._free += range(2 * size - 1, size - 1, -1)  # the first ones first
    return [self._free.pop() for _ in range(count)]
