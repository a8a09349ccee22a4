"""The programs of an engine's slots, for 1, 2, 4, 8, ... rows and for all.

    empty    rows that hold nothing
    place    one row's state and logits -> a row
    move     a row -> another place
    decode   up to `count` tokens of every row
    draft    the same with drafts by prompt lookup, where rows are few
    grow, shrink   the same rows, in the next wider or narrower program

Rows never mix, and each is computed in an order of sums that doesn't depend on
their number where the model's products and norms are of this library
(ops/products). Elsewhere XLA may choose another order for another number of
rows; slots.py compares the bits before it uses a width.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import decode as decode_lib
from rnn_jax.inference import drafts
from rnn_jax.inference import prompt_lookup
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling

DRAFTING = 4  # rows, at most: of more, checking drafts takes longer than steps
REMEMBERED = 2048  # tokens of a longer text that are looked up, at least


class Drafts(NamedTuple):
  """How rows draft."""

  tokens: int  # of a draft; 0: there are none
  calls: int  # of the model, in a call of a program

  @property
  def buffer(self) -> int:
    """Tokens of a row per call, at most."""
    return self.calls * (self.tokens + 1)

  def recent(self, B: int) -> prompt_lookup.Recent:
    """Returns the texts of B rows."""
    room = self.buffer + self.tokens + 1
    return prompt_lookup.Recent(B, max(REMEMBERED, room), room)

  def unconstrained(self, B: int, vocabulary: int) -> drafts.Constrained:
    """Returns B rows of which none is constrained."""
    return drafts.Constrained(
      np.zeros((B, sampler.words(vocabulary)), np.uint32),
      np.zeros((B, self.tokens), np.int32),
      np.zeros(B, np.int32),
    )


@dataclasses.dataclass
class Program:
  """The programs of one width; see the module's docstring.

  Attributes:
    width: B, the rows.
    decode: (weights, carry, options, count, allowed_BxM) -> (carry, produced),
      as decode.decode.
    place: (carry, row, state, logits_1xV, memory) -> carry.
    draft: as drafts.decode, with look-ups and constraints; None: no row drafts.
    check_cost: the time of a run of it that checks a draft, in single steps.
    move: (carry, from, to) -> carry.
    grow, shrink: carry -> the carry of the next width; None: there is none.
    unconstrained: rows of which none is constrained.
    shapes: of the carry.
  """

  width: int
  decode: Callable[..., tuple[decode_lib.Carry, decode_lib.Produced]]
  place: Callable[..., decode_lib.Carry]
  move: Callable[..., decode_lib.Carry]
  unconstrained: drafts.Constrained
  shapes: decode_lib.Carry
  draft: Callable[..., Any] | None = None
  check_cost: float = 1.0
  grow: Callable[[decode_lib.Carry], decode_lib.Carry] | None = None
  shrink: Callable[[decode_lib.Carry], decode_lib.Carry] | None = None

  def empty(self) -> decode_lib.Carry:
    """Returns rows that hold nothing."""
    device = self.unconstrained.allowed_BxM.device
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self.shapes)
    return jax.device_put(zeros, device)


def widths(count: int) -> list[int]:
  """Returns the powers of 2 below `count`, and `count`."""
  return [1 << n for n in range((count - 1).bit_length())] + [count]


def compile_all(
  model: nn.Module,
  weights: decode_lib.Weights,
  count: int,
  drafted: Drafts,
) -> list[Program]:
  """Returns a program for each width, the narrowest first.

  Args:
    model: the model.
    weights: those it computes with are like these.
    count: the rows of the widest.
    drafted: how rows draft, where they are few.
  """
  kind = sampling.any_kind(model.vocabulary)
  options = decode_lib.Options(kind, drafted.calls)
  number = jax.ShapeDtypeStruct((), jnp.int32)
  one = jax.eval_shape(functools.partial(decode_lib.empty, model, 1))
  decodes, places, moves, checks, made = [], [], [], [], []
  for B in widths(count):
    shapes = jax.eval_shape(functools.partial(decode_lib.empty, model, B))
    none = drafted.unconstrained(B, model.vocabulary)
    table = sampling.pack(sampling.make_table(B))
    decodes.append(
      decode_lib.decode.lower(
        model, options, weights, shapes, table, number, none.allowed_BxM
      )
    )
    places.append(
      _place.lower(shapes, number, one.state, one.logits_BxV, one.memory)
    )
    moves.append(_move.lower(shapes, number, number))
    checks.append(
      _lower_drafts(model, options, weights, shapes, table, drafted)
    )
    made.append((jax.device_put(none, weights.device), shapes))
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    compiled = [
      pool.map(lambda lowered: lowered and lowered.compile(), each)
      for each in (decodes, places, moves, checks)
    ]
  programs = [
    Program(B, decode, place, move, none, shapes, draft)
    for B, decode, place, move, draft, (none, shapes) in zip(
      widths(count), *compiled, made, strict=True
    )
  ]
  return only(programs, [True] * len(programs))


def _lower_drafts(model, options, weights, shapes, table, drafted):
  """Returns the program of few rows that draft, None of others."""
  B = len(shapes.position_B)
  if not drafted.tokens or B > DRAFTING:
    return None
  number = jax.ShapeDtypeStruct((), jnp.int32)
  return drafts.decode.lower(
    model,
    options._replace(buffer=drafted.buffer),
    prompt_lookup.Lookup(drafted.tokens),
    weights,
    shapes,
    drafted.recent(B).past,
    table,
    drafts.Limits(number, number),
    None,
    drafted.unconstrained(B, model.vocabulary),
  )


def only(programs: Sequence[Program], wanted: Sequence[bool]) -> list[Program]:
  """Returns the wanted programs, each with ways to its neighbours' widths."""
  kept = [*itertools.compress(programs, wanted)]
  for narrow, wide in itertools.pairwise(kept):
    narrow.grow = _resize.lower(wide.width, narrow.shapes).compile()
    wide.shrink = _resize.lower(narrow.width, wide.shapes).compile()
  return kept


@functools.partial(jax.jit, donate_argnums=0)
def _place(rows, row, state, logits_1xV, memory):
  one = decode_lib.Carry(state, logits_1xV, jnp.zeros(1, jnp.int32), memory)

  def put(all_rows, own):
    own = own.astype(all_rows.dtype)
    return jax.lax.dynamic_update_slice_in_dim(all_rows, own, row, 0)

  return jax.tree.map(put, rows, one)


@functools.partial(jax.jit, donate_argnums=0)
def _move(rows, source, target):
  def move(x):
    row = jax.lax.dynamic_slice_in_dim(x, source, 1)
    return jax.lax.dynamic_update_slice_in_dim(x, row, target, 0)

  return jax.tree.map(move, rows)


@functools.partial(jax.jit, static_argnums=0)
def _resize(B, rows):
  def resize(x):
    if len(x) > B:
      return x[:B]
    return jnp.pad(x, [(0, B - len(x))] + [(0, 0)] * (x.ndim - 1))

  return jax.tree.map(resize, rows)
