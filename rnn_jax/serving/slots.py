"""The slots of an engine: which rows they hold, and the calls for all of them.

A row's options are a line of a table, which is copied to the device whenever it
has changed. Position, state and logits stay on the device. Between two calls
the host may place rows and free slots; a row that ends within a call is ignored
until the call's end.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.serving import programs as programs_lib
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
  """

  def __init__(self, programs: programs_lib.Programs, boundary: int) -> None:
    """Takes the programs, and the token that ends a document."""
    B = programs.slots
    self.rows: list[work.Row | None] = [None] * B
    self.calls = 0
    self.steps = 0
    self._programs = programs
    self._boundary = boundary
    self._most = programs.steps
    self._table = sampling.make_table(B)
    self._table_on_device: sampling.Packed | None = None
    shape = B, sampler.words(programs.vocabulary)
    self._allowed_BxM = np.zeros(shape, np.uint32)
    self._none_allowed = jax.device_put(
      np.zeros(shape, np.uint32), programs.device
    )
    self._carry = programs.empty()
    self._begun: tuple[Any, list[work.Row | None]] | None = None

  @property
  def used(self) -> int:
    """How many slots hold a row."""
    return sum(row is not None for row in self.rows)

  @property
  def constrained(self) -> bool:
    """Whether a row's next token depends on the host."""
    return bool(self._table.constrained_B.any())

  def check(self, weights: decode.Weights) -> None:
    """Makes the same tokens in all slots, and compares all numbers.

    Raises:
      InputError: they differ, so that a row would depend on its slot here.
    """
    programs, count = self._programs, self._most
    chunk = np.arange(programs.sizes[0], dtype=np.int32) % programs.vocabulary
    last = programs.models - 1
    state, logits = programs.read(weights, programs.blank.state, chunk, last)
    row = programs.blank._replace(state=state, logits_BxV=logits)
    carry = programs.empty()
    for slot in range(programs.slots):
      carry = programs.place(carry, slot, row)
    table = sampling.make_table(programs.slots)
    table.active_B[:] = True
    table.limit_B[:] = count
    table.adapter_B[:] = last
    rows = jax.device_put(sampling.pack(table), programs.device)
    made = programs.decode(weights, carry, rows, self._none_allowed, count)
    for x in jax.tree.leaves(jax.device_get(made)):
      if x[:1].tobytes() * len(x) != x.tobytes():
        errors.refuse(
          'slots',
          programs.slots,
          'on this device rows with the same state give different bits: give '
          'another number of slots',
        )

  def place(self, slot: int, row: work.Row) -> None:
    """Puts a row whose prompt was read into a free slot."""
    job, programs = row.job, self._programs
    options, entry = job.options, job.read
    assert entry is not None
    one = programs.blank._replace(
      state=entry.state, logits_BxV=entry.logits_1xV
    )
    if options.sampling.remembers:
      memory = sampler.remember(
        [job.ids], options.sampling, programs.vocabulary
      )
      one = one._replace(memory=jax.device_put(memory, programs.device))
    self._carry = programs.place(self._carry, slot, one)
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
    self._carry = self._programs.empty()

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
    programs, constrained = self._programs, self.constrained
    count = 1 if constrained else min(self._most, max(left))
    if self._table_on_device is None:
      packed = sampling.pack(self._table)  # a copy, which the device may keep
      self._table_on_device = jax.device_put(packed, programs.device)
    allowed = self._none_allowed
    if constrained:
      allowed = jax.device_put(self._allowed_BxM.copy(), programs.device)
    self._carry, produced = programs.decode(
      weights, self._carry, self._table_on_device, allowed, count
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
