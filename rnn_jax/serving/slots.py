"""The slots of an engine: which rows they hold, and the calls for all of them.

    place    one row's state and logits -> a slot
    decode   up to `count` tokens of every slot, without a visit to the host

A row's options are a line of a table, which is copied to the device whenever it
has changed. Position, state and logits stay on the device. Between two calls
the host may place rows and free slots; a row that ends within a call is ignored
until the call's end.

The programs have one shape, B slots. XLA computes each row of a matmul from
that row only, in an order that follows from the shapes. So a row's numbers
depend on the number of slots, and on nothing in other slots; `check` compares
them where the model serves.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.serving import prefixes
from rnn_jax.serving import work


@dataclasses.dataclass
class Call:
  """What a call made, on the host, for the rows that it was begun with."""

  rows: list[work.Row | None]
  made_B: list[int]
  tokens_BxN: list[list[int]]
  logprobs_BxN: list[list[float]]
  best_BxNxK: list | None  # (token, log-probability)

  def of(
    self, slot: int, alternatives: int
  ) -> tuple[list[int], list[float], list[tuple[tuple[int, float], ...]]]:
    """Returns a row's tokens, log-probabilities and most likely tokens."""
    made = self.made_B[slot]
    best = []
    if alternatives:
      assert self.best_BxNxK is not None
      pairs = self.best_BxNxK[slot][:made]
      best = [tuple(each[:alternatives]) for each in pairs]
    tokens, logprobs = self.tokens_BxN[slot], self.logprobs_BxN[slot]
    return tokens[:made], logprobs[:made], best


class Slots:
  """See the module's docstring. It is used by one thread.

  Attributes:
    rows: what each slot holds; None: it is free.
    calls, steps: how many were made.
    compiled: how many programs there are.
  """

  def __init__(
    self,
    model: nn.Module,
    weights: decode.Weights,
    count: int,
    steps: int,
    boundary: int,
  ) -> None:
    """Compiles the programs.

    Args:
      model: the model.
      weights: those it computes with are like these.
      count: of the slots, B.
      steps: tokens of a row per call, at most.
      boundary: the token that ends a document.
    """
    self.rows: list[work.Row | None] = [None] * count
    self.calls = 0
    self.steps = 0
    self._boundary = boundary
    self._most = steps
    self._vocabulary = model.vocabulary
    self._device = weights.device
    self._table = sampling.make_table(count)
    self._table_on_device: sampling.Packed | None = None
    shape = count, sampler.words(model.vocabulary)
    self._allowed_BxM = np.zeros(shape, np.uint32)
    self._compile(model, weights)
    self.compiled = 3
    self._none_allowed, self._no_memory, self._numbers = jax.device_put(
      (
        np.zeros(shape, np.uint32),
        self._remember(np.zeros(0, int), sampling.Sampling()),
        [np.int32(n) for n in range(max(count, steps + 1))],
      ),
      self._device,
    )
    self._carry = self._empty()
    self._begun: tuple[Any, list[work.Row | None]] | None = None

  def _compile(self, model, weights):
    count = len(self.rows)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    empty = jax.eval_shape(functools.partial(decode.empty, model, count))
    one = jax.eval_shape(functools.partial(decode.empty, model, 1))
    options = decode.Options(sampling.any_kind(model.vocabulary), self._most)
    self._empty = decode.empty.lower(model, count).compile()
    self._place = _place.lower(
      empty, number, one.state, one.logits_BxV, one.memory
    ).compile()
    self._decode = decode.decode.lower(
      model,
      options,
      weights,
      empty,
      sampling.pack(self._table),
      number,
      self._allowed_BxM,
    ).compile()

  @property
  def used(self) -> int:
    """How many slots hold a row."""
    return sum(row is not None for row in self.rows)

  @property
  def constrained(self) -> bool:
    """Whether a row's next token depends on the host."""
    return bool(self._table.constrained_B.any())

  def check(
    self, weights: decode.Weights, read: prefixes.Entry, adapter: int
  ) -> None:
    """Makes the same tokens in all slots, and compares all numbers.

    Args:
      weights: what the model computes with.
      read: a text that was read with an adapter.
      adapter: its number.

    Raises:
      InputError: they differ, so that a row would depend on its slot here.
    """
    count, carry = len(self.rows), self._empty()
    for slot in range(count):
      carry = self._put(carry, slot, read, self._no_memory)
    table = sampling.make_table(count)
    table.active_B[:] = True
    table.limit_B[:] = self._most
    table.adapter_B[:] = adapter
    rows = jax.device_put(sampling.pack(table), self._device)
    most = self._numbers[self._most]
    made = self._decode(weights, carry, rows, most, self._none_allowed)
    for x in jax.tree.leaves(jax.device_get(made)):
      if x[:1].tobytes() * len(x) != x.tobytes():
        errors.refuse(
          'slots',
          count,
          'on this device rows with the same state give different bits: give '
          'another number of slots',
        )

  def _put(self, carry, slot, read, memory):
    """Returns the carry with a row in a slot; the old one is donated."""
    number = self._numbers[slot]
    return self._place(carry, number, read.state, read.logits_1xV, memory)

  def _remember(self, ids, settings):
    return sampler.remember([ids], settings, self._vocabulary)

  def place(self, slot: int, row: work.Row) -> None:
    """Puts a row whose prompt was read into a free slot."""
    job, memory = row.job, self._no_memory
    options = job.options
    if options.sampling.remembers:
      memory = self._remember(job.ids, options.sampling)
      memory = jax.device_put(memory, self._device)
    assert job.read is not None
    self._carry = self._put(self._carry, slot, job.read, memory)
    self.rows[slot] = row
    line = options.line(options.index + row.choice, self._boundary)
    line = line._replace(
      constrained_B=row.matcher is not None,
      alternatives_B=options.alternatives,
      adapter_B=job.adapter,
    )
    sampling.put(self._table, slot, line)
    self._table_on_device = None
    self.allow(slot)

  def allow(self, slot: int) -> None:
    """Sets the tokens that a constraint allows next."""
    row = self.rows[slot]
    if row is not None and row.matcher is not None:
      self._allowed_BxM[slot] = row.matcher.allowed()

  def free(self, slot: int) -> None:
    """Frees a slot."""
    self.rows[slot] = None
    self._table.active_B[slot] = False
    self._table.constrained_B[slot] = False
    self._table_on_device = None

  def reset(self) -> None:
    """Frees all slots and forgets their states, after a call that failed."""
    for slot in range(len(self.rows)):
      self.free(slot)
    self._begun = None
    self._carry = self._empty()

  def free_slots(self) -> list[int]:
    """Returns the slots that hold no row."""
    return [slot for slot, row in enumerate(self.rows) if row is None]

  def begin(self, weights: decode.Weights) -> bool:
    """Begins a call. Returns False if there is no row."""
    left = [
      row.job.options.max_new_tokens - row.made for row in self.rows if row
    ]
    if not left:
      return False
    constrained = self.constrained
    count = 1 if constrained else min(self._most, max(left))
    if self._table_on_device is None:
      packed = sampling.pack(self._table)  # a copy, which the device may keep
      self._table_on_device = jax.device_put(packed, self._device)
    allowed = self._none_allowed
    if constrained:
      allowed = jax.device_put(self._allowed_BxM.copy(), self._device)
    self._carry, produced = self._decode(
      weights,
      self._carry,
      self._table_on_device,
      self._numbers[count],
      allowed,
    )
    self._begun = produced, [*self.rows]
    self.calls += 1
    self.steps += count
    return True

  def end(self) -> Call | None:
    """Waits for the call that was begun, and frees the rows that it ended.

    Returns:
      What it made; None if none was begun.
    """
    if self._begun is None:
      return None
    (produced, rows), self._begun = self._begun, None
    wanted = any(row and row.job.options.alternatives for row in rows)
    made_B, tokens, logprobs, *best = jax.device_get(
      tuple(produced) if wanted else produced[:3]
    )
    call = Call(rows, made_B.tolist(), tokens.tolist(), logprobs.tolist(), None)
    if wanted:
      call.best_BxNxK = [
        [[*zip(*pair, strict=True)] for pair in zip(*row, strict=True)]
        for row in zip(*(x.tolist() for x in best), strict=True)
      ]
    for slot, row in enumerate(rows):
      if row is not None:
        row.advance(call.tokens_BxN[slot][: call.made_B[slot]])
        if row.reason and self.rows[slot] is row:
          self.free(slot)
    return call


@functools.partial(jax.jit, donate_argnums=0)
def _place(slots, slot, state, logits_1xV, memory):
  row = decode.Carry(state, logits_1xV, jnp.zeros(1, jnp.int32), memory)

  def put(all_rows, one):
    one = one.astype(all_rows.dtype)
    return jax.lax.dynamic_update_slice_in_dim(all_rows, one, slot, 0)

  return jax.tree.map(put, slots, row)
