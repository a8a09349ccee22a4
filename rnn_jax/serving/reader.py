"""Reads texts chunk by chunk, from the longest beginning that is stored."""

import collections
import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from rnn_jax.serving import prefixes
from rnn_jax.serving import programs as programs_lib
from rnn_jax.serving import reading
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import work


@dataclasses.dataclass(eq=False)
class Reading:
  """A text that is being read.

  Attributes:
    chunks: what is left.
    entry: the state after what was read.
    key: of the state at the text's end.
    skipped: tokens whose state was stored.
    job: whose text it is.
    done: called at the end.
  """

  chunks: collections.deque[reading.Chunk]
  entry: prefixes.Entry
  key: bytes
  skipped: int
  job: work.Job
  done: Callable[['Reading'], None]


class Reader:
  """See the module's docstring. It is used by one thread.

  Attributes:
    tokens: how many were read.
  """

  def __init__(
    self, programs: programs_lib.Programs, store: prefixes.Store
  ) -> None:
    """Takes the programs and the store of beginnings."""
    self.tokens = 0
    self._programs = programs
    self._store = store

  def prompt(
    self,
    served: served_lib.Served,
    job: work.Job,
    done: Callable[[Reading], None],
  ) -> Reading:
    """Returns the reading of a job's prompt.

    Raises:
      InputError: its state isn't the model's.
    """
    programs, given = self._programs, job.request.state
    if given is None:
      job.root = served.root
      job.base = prefixes.Entry(programs.fresh, programs.no_logits)
    else:
      served.check_state(given)  # the model may have changed
      tree = jax.tree.structure(programs.fresh)
      state = jax.tree.unflatten(tree, given.leaves)
      job.root = bytes.fromhex(given.text)
      job.base = prefixes.Entry(
        *jax.device_put((state, given.logits_1xV), programs.device)
      )
    return self.text(served, job, job.ids, done)

  def text(
    self,
    served: served_lib.Served,
    job: work.Job,
    ids: np.ndarray,
    done: Callable[[Reading], None],
  ) -> Reading:
    """Returns the reading of a text that begins as a job's prompt does."""
    sizes = self._programs.sizes
    chunks = reading.plan(job.root, ids, served.segment_end, sizes)
    count, entry = self._store.longest(chunks)
    if job.read is not None:  # the prompt's end, which may not be stored
      places = {chunk.key: n for n, chunk in enumerate(chunks, 1)}
      if places.get(job.key, 0) > count:
        count, entry = places[job.key], job.read
    skipped = sum(len(chunk.tokens) for chunk in chunks[:count])
    assert job.base is not None
    return Reading(
      collections.deque(chunks[count:]),
      entry or job.base,
      chunks[-1].key if chunks else job.root,
      skipped,
      job,
      done,
    )

  def advance(self, weights: programs_lib.Weights, current: Reading) -> bool:
    """Reads one chunk. Returns whether all has been read."""
    if current.chunks:
      chunk = current.chunks.popleft()
      current.entry = prefixes.Entry(
        *self._programs.read(
          weights, current.entry.state, chunk.tokens, current.job.adapter
        )
      )
      self.tokens += len(chunk.tokens)
      if chunk.kept:
        self._store.put(chunk.key, current.entry)
    return not current.chunks
