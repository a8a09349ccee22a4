"""How a text is read: chunk by chunk, with borders that only the text decides.

A text is a sequence of segments. In a model that was trained on turns, each
boundary ends one; in others all of a text is one. From its beginning, a segment
is read as the largest chunks of fixed sizes that fit, and its last tokens, too
few for the smallest size, step by step:

    sizes 16, 32, 128:   150 tokens = 128 + 16 + 6 steps

Each chunk is one call of a program for one row, whose matrices are summed with
those of its adapter (inference/row_adapters.py). Its key is a chained digest,
SHA-256 of (the key before, the chunk's tokens). Equal keys are equal calls from
the text's beginning on, hence equal states, to the last bit. States at the ends
of the largest chunks and of segments are worth keeping: other texts that begin
in the same way have the same ones.

While rows wait for their next token, a largest chunk may be read in pieces of
the size below it, if `check` has found that its bits are the same either way:
where a recurrence advances step by step, or in blocks that divide a piece, they
are.
"""

import collections
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import row_adapters
from rnn_jax.models import packed_weights
from rnn_jax.serving import prefixes
from rnn_jax.serving import served as served_lib
from rnn_jax.serving import work

SIZES = 16, 32, 128
SAMPLES = 3  # that check an engine's slots


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
  """One call of a program.

  Attributes:
    tokens: its tokens, int32.
    key: of the state after it.
    kept: whether other texts may continue from that state.
  """

  tokens: np.ndarray
  key: bytes
  kept: bool


def check_sizes(sizes: tuple[int, ...]) -> None:
  """Checks the sizes of chunks.

  Raises:
    InputError: there are none, they don't rise, or one is below 2.
  """
  if not sizes or sizes[0] < 2 or list(sizes) != sorted(set(sizes)):
    errors.refuse('chunks', sizes, 'give rising whole numbers from 2 on')


def segments(ids: np.ndarray, boundary: int | None) -> list[np.ndarray]:
  """Returns the segments of a text; `boundary` ends one, None: all is one."""
  if boundary is None:
    return [ids] if len(ids) else []
  ends = np.flatnonzero(ids == boundary) + 1
  return [part for part in np.split(ids, ends) if len(part)]


def lengths(count: int, sizes: tuple[int, ...]) -> list[int]:
  """Returns the lengths of the chunks of a segment of `count` tokens."""
  made = []
  for size in reversed(sizes):
    made += [size] * (count // size)
    count %= size
  return made + [count] * bool(count)


def plan(
  key: bytes, ids: np.ndarray, boundary: int | None, sizes: tuple[int, ...]
) -> list[Chunk]:
  """Returns the chunks of a text.

  Args:
    key: of the state before the text, in which a segment has just ended.
    ids: the text's tokens.
    boundary: the token that ends a segment; None: only the text's end does.
    sizes: of chunks, rising.
  """
  chunks = []
  for segment in segments(np.asarray(ids, np.int32), boundary):
    begin = 0
    for length in lengths(len(segment), sizes):
      tokens = segment[begin : begin + length]
      begin += length
      key = hashlib.sha256(key + tokens.astype('<i4').tobytes()).digest()
      kept = length == sizes[-1] or begin == len(segment)
      chunks.append(Chunk(tokens, key, kept))
  return chunks


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
    begun: tokens of the first chunk that were read, in pieces.
  """

  chunks: collections.deque[Chunk]
  entry: prefixes.Entry
  key: bytes
  skipped: int
  job: work.Job
  done: Callable[['Reading'], None]
  begun: int = 0


class Reader:
  """Reads texts from the longest stored beginning on. It is for one thread.

  Attributes:
    blank: what the model knows before any text.
    tokens: how many were read.
    compiled: how many programs there are.
    piece: tokens of a piece of a largest chunk; 0: those are read whole.
  """

  def __init__(
    self,
    model: nn.Module,
    weights: decode.Weights,
    sizes: tuple[int, ...],
    store: prefixes.Store,
  ) -> None:
    """Compiles the programs.

    Args:
      model: the model.
      weights: those it computes with are like these.
      sizes: of chunks, rising.
      store: of beginnings.
    """
    self.tokens = 0
    self.piece = 0
    self._sizes = sizes
    self._store = store
    self._device = weights.device
    self._numbers = jax.device_put(
      [np.int32(n) for n in range(max(sizes[0], weights.models))], self._device
    )
    self.blank = prefixes.Entry(*decode.fresh.lower(model).compile()())
    like, number = self.blank.state, jax.ShapeDtypeStruct((), jnp.int32)
    self._read = {
      size: _read.lower(model, weights, like, _ids(1, size), number).compile()
      for size in sizes
    }
    self._step = decode.read.lower(
      model, weights, like, _ids(sizes[0]), number, number
    ).compile()
    self.compiled = 2 + len(sizes)

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
    given = job.options.state
    if given is None:
      job.root, job.base = served.root, self.blank
    else:
      served.check_state(given)  # the model may have changed
      tree = jax.tree.structure(self.blank.state)
      state = jax.tree.unflatten(tree, given.leaves)
      job.root = bytes.fromhex(given.text)
      job.base = prefixes.Entry(
        *jax.device_put((state, given.logits_1xV), self._device)
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
    chunks = plan(job.root, ids, served.segment_end, self._sizes)
    keys = [chunk.key if chunk.kept else b'' for chunk in chunks]
    count, entry = self._store.longest(keys)
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

  def advance(
    self, weights: decode.Weights, current: Reading, enough: float = math.inf
  ) -> bool:
    """Reads one chunk, or a piece of it. Returns whether all has been read.

    Args:
      weights: what the model computes with.
      current: what is read.
      enough: tokens; of a longer chunk a piece is read.
    """
    if current.chunks:
      chunk, adapter = current.chunks[0], current.job.adapter
      tokens = chunk.tokens[current.begun :]
      if self.piece and (len(tokens) > enough or current.begun):
        tokens = tokens[: self.piece]
      current.entry = self.read(weights, current.entry, tokens, adapter)
      self.tokens += len(tokens)
      current.begun += len(tokens)
      if current.begun == len(chunk.tokens):
        current.chunks.popleft()
        current.begun = 0
        if chunk.kept:
          self._store.put(chunk.key, current.entry)
    return not current.chunks

  def check(self, weights: decode.Weights) -> None:
    """Finds out whether largest chunks may be read in pieces; sets `piece`."""
    *smaller, largest = self._sizes
    if not smaller or largest % smaller[-1]:
      return
    adapter, piece = weights.models - 1, smaller[-1]
    V = self.blank.logits_1xV.shape[1]
    tokens = np.random.default_rng(0).integers(V, size=largest, dtype=np.int32)
    whole = self.read(weights, self.blank, tokens, adapter)
    entry = self.blank
    for part in np.split(tokens, largest // piece):
      entry = self.read(weights, entry, part, adapter)
    if _bits(whole) == _bits(entry):
      self.piece = piece

  def read(
    self,
    weights: decode.Weights,
    before: prefixes.Entry,
    tokens: np.ndarray,
    adapter: int,
  ) -> prefixes.Entry:
    """Returns what the model knows after a chunk."""
    own = self._numbers[adapter]
    if program := self._read.get(len(tokens)):
      tokens_1xL = jax.device_put(tokens[None], self._device)
      read = program(weights, before.state, tokens_1xL, own)
    else:
      filled = np.zeros(self._sizes[0], np.int32)
      filled[: len(tokens)] = tokens
      filled, count = jax.device_put(filled, self._device), len(tokens)
      read = self._step(
        weights, before.state, filled, self._numbers[count], own
      )
    return prefixes.Entry(*read)

  def samples(self, weights: decode.Weights) -> list[prefixes.Entry]:
    """Returns what is known after small chunks, with the last adapter."""
    V, L = self.blank.logits_1xV.shape[1], self._sizes[0]
    chunks = [np.arange(n, n + L, dtype=np.int32) % V for n in range(SAMPLES)]
    adapter = weights.models - 1
    return [self.read(weights, self.blank, each, adapter) for each in chunks]


def _bits(entry):
  arrays = jax.device_get((entry.state, entry.logits_1xV))
  return [x.tobytes() for x in jax.tree.leaves(arrays)]


def _ids(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


@functools.partial(jax.jit, static_argnums=0)
def _read(model, weights, state, tokens_1xL, adapter):
  params = weights.params
  if weights.adapters:
    own = row_adapters.take(weights.adapters, adapter)
    params = row_adapters.merged(packed_weights.unpack(params), own)
  state, logits_1x1xV = decode.apply(
    model, params, state, tokens_1xL, method=_last_logits
  )
  return state, logits_1x1xV[:, 0]


def _last_logits(model, state, tokens_BxL, starts_BxL):
  """Runs a model whose logits are needed only after the last token."""
  state, x = model.hidden(state, tokens_BxL, starts_BxL)
  return state, model.logits(model.normalize(x[:, -1:]))
