"""The slots of an engine: which rows they hold, and the calls for all of them.

    place    one row's state and logits -> a slot
    decode   up to `count` tokens of every slot, without a visit to the host

A row's options are a line of a table, which is copied to the device whenever it
has changed. Position, state and logits stay on the device. Between two calls
the host may place rows and free slots; a row that ends within a call is ignored
until the call's end.

A call computes the rows that are there: its program is the narrowest of
widths.py that holds them, so that one client waits for one row's work. Rows
are kept in the lowest slots, and move when others have ended. Few rows may
draft (inference/drafts.py): a call then makes several tokens of a row for each
run of the model, to the same bits.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import drafts
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.serving import agreement
from rnn_jax.serving import prefixes
from rnn_jax.serving import widths as widths_lib
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
    drafted: of calls that could draft, the tokens that a row made, and
      runs of the model.
  """

  def __init__(
    self,
    model: nn.Module,
    weights: decode.Weights,
    count: int,
    steps: int,
    boundary: int,
    draft_tokens: int = 0,
  ) -> None:
    """Compiles the programs.

    Args:
      model: the model.
      weights: those it computes with are like these.
      count: of the slots.
      steps: tokens of a row per call, at most.
      boundary: the token that ends a document.
      draft_tokens: that few rows check at a time; 0: none are.
    """
    self.rows: list[work.Row | None] = [None] * count
    self.calls = 0
    self.steps = 0
    self.drafted: collections.Counter[str] = collections.Counter()
    self._boundary = boundary
    self._most = steps
    self._vocabulary = model.vocabulary
    self._device = weights.device
    self._table = sampling.make_table(count)
    self._table_on_device: sampling.Packed | None = None
    self._drafts = widths_lib.Drafts(draft_tokens, steps)
    self._constrained = self._drafts.unconstrained(count, model.vocabulary)
    self._recent = self._drafts.recent(count if draft_tokens else 0)
    self._programs = widths_lib.compile_all(model, weights, count, self._drafts)
    self._no_memory, self._numbers = jax.device_put(
      (
        self._remember(np.zeros(0, int), sampling.Sampling()),
        [np.int32(n) for n in range(max(count, self._drafts.buffer + 1))],
      ),
      self._device,
    )
    self._level = 0  # of the program whose rows the carry has
    self._carry = self._programs[0].empty()
    self._begun: (
      tuple[Any, list[work.Row | None], Any, widths_lib.Program] | None
    ) = None

  @property
  def used(self) -> int:
    """How many slots hold a row."""
    return sum(row is not None for row in self.rows)

  @property
  def constrained(self) -> bool:
    """Whether a row's next token depends on the host."""
    return bool(self._table.constrained_B.any())

  @property
  def next_steps(self) -> int:
    """How many steps the next call makes, at most."""
    # The host says what constrained rows may choose after a step.
    return 1 if self.constrained else self._most

  @property
  def compiled(self) -> int:
    """How many programs there are."""
    drafting = sum(each.draft is not None for each in self._programs)
    # There is no way below the first, nor above the last.
    return 5 * len(self._programs) - 2 + drafting

  @property
  def widths(self) -> tuple[int, ...]:
    """The numbers of rows that a call may compute, rising."""
    return tuple(each.width for each in self._programs)

  def check(
    self,
    weights: decode.Weights,
    read: Sequence[prefixes.Entry],
    adapter: int,
  ) -> None:
    """Makes tokens in all slots at all widths, and compares all numbers.

    Of widths at which a row's bits aren't those that it has among all rows,
    none is used later, and where they aren't the same with drafts, or where a
    check takes longer than the steps that it can save, no row drafts.

    Args:
      weights: what the model computes with.
      read: texts that were read with an adapter; each slot has one of them.
      adapter: its number.

    Raises:
      InputError: rows with the same state differ at the full width, so that a
        row would depend on its slot here.
    """
    start = agreement.Start(
      weights, read, adapter, self._no_memory, self._drafts
    )
    rows = {each.width: agreement.rows(each, start) for each in self._programs}
    count = len(self.rows)
    wanted = rows[count][: len(read)]
    for slot, row in enumerate(rows[count]):
      if row != wanted[slot % len(read)]:
        errors.refuse(
          'slots',
          count,
          'on this device rows with the same state give different bits: give '
          'another number of slots',
        )
    agree = [
      all(row == wanted[slot % len(read)] for slot, row in enumerate(own))
      for own in rows.values()
    ]
    if not all(agree):
      self._programs = widths_lib.only(self._programs, agree)
    for each in self._programs:
      if each.draft and not agreement.drafts(each, start):
        each.draft = None
      if each.draft:
        each.check_cost = agreement.cost(each, start)
        if each.check_cost > self._drafts.tokens + 1:
          each.draft = None
    self.reset()

  def _put(self, program, carry, slot, read, memory):
    """Returns the carry with a row in a slot; the old one is donated."""
    number = self._numbers[slot]
    return program.place(carry, number, read.state, read.logits_1xV, memory)

  def _remember(self, ids, settings):
    return sampler.remember([ids], settings, self._vocabulary)

  def place(self, row: work.Row) -> None:
    """Puts a row whose prompt was read into the lowest free slot."""
    slot = self.rows.index(None)
    job, memory = row.job, self._no_memory
    options = job.options
    if options.sampling.remembers:
      memory = self._remember(job.ids, options.sampling)
      memory = jax.device_put(memory, self._device)
    if self._drafts.tokens:
      self._recent.begin(slot, job.ids)
    assert job.read is not None
    while self._programs[self._level].width <= slot:
      self._resize(self._programs[self._level].grow, 1)
    self._carry = self._put(
      self._programs[self._level], self._carry, slot, job.read, memory
    )
    self.rows[slot] = row
    line = options.line(options.index + row.choice, self._boundary)
    line = line._replace(
      constrained_B=row.matcher is not None,
      alternatives_B=options.alternatives,
      adapter_B=job.adapter,
    )
    sampling.put(self._table, slot, line)
    self._table_on_device = None
    self.allow(row)

  def allow(self, row: work.Row) -> None:
    """Sets the tokens that a row's constraint allows next, if it has a slot."""
    if row.matcher is None or row not in self.rows:
      return
    slot, constrained = self.rows.index(row), self._constrained
    constrained.allowed_BxM[slot] = row.matcher.allowed()
    forced = []
    # Penalties would have to count each token.
    if self._drafts.tokens and not row.job.options.sampling.remembers:
      forced = row.matcher.forced(self._drafts.tokens + 1)[1:]
    constrained.forced_BxN[slot, : len(forced)] = forced
    constrained.forced_B[slot] = len(forced)

  def free(self, row: work.Row) -> None:
    """Frees the slot of a row, if it has one."""
    if row in self.rows:
      self._clear(self.rows.index(row))

  def _clear(self, slot):
    self.rows[slot] = None
    self._table.active_B[slot] = False
    self._table.constrained_B[slot] = False
    self._constrained.forced_B[slot] = 0
    self._table_on_device = None

  def reset(self) -> None:
    """Frees all slots and forgets their states, after a call that failed."""
    for slot in range(len(self.rows)):
      self._clear(slot)
    self._begun = None
    self._level = 0
    self._carry = self._programs[0].empty()

  def _fit(self):
    """Moves the rows below the narrowest width that holds them."""
    used = self.used
    level = next(n for n, width in enumerate(self.widths) if width >= used)
    for slot in range(self.widths[level], self.widths[self._level]):
      if self.rows[slot] is not None:
        self._move(slot, self.rows.index(None))
    while self._level > level:
      self._resize(self._programs[self._level].shrink, -1)
      self._table_on_device = None

  def _resize(self, resize, change):
    assert resize is not None
    self._carry = resize(self._carry)
    self._level += change

  def _move(self, slot, free):
    numbers = self._numbers[slot], self._numbers[free]
    self._carry = self._programs[self._level].move(self._carry, *numbers)
    self.rows[free] = self.rows[slot]
    columns = *self._table, *self._constrained
    if self._drafts.tokens:
      columns += self._recent.columns
    for column in columns:
      column[free] = column[slot]
    self._clear(slot)

  def begin(self, weights: decode.Weights) -> bool:
    """Begins a call. Returns False if there is no row."""
    left = [
      row.job.options.max_new_tokens - row.made for row in self.rows if row
    ]
    if not left:
      return False
    self._fit()
    program = self._programs[self._level]
    if self._table_on_device is None:
      table = sampling.Rows(*(x[: program.width] for x in self._table))
      packed = sampling.pack(table)  # a copy, which the device may keep
      self._table_on_device = jax.device_put(packed, self._device)
    count = min(self.next_steps, max(left))
    begin = self._begin_drafts if self._drafting else self._begin_steps
    produced, runs = begin(program, weights, count, max(left))
    self._begun = produced, [*self.rows], runs, program
    self.calls += 1
    self.steps += count
    return True

  @property
  def _drafting(self):
    """Whether the next call checks drafts."""
    if not self._programs[self._level].draft:
      return False
    used = [slot for slot, row in enumerate(self.rows) if row]
    return self.constrained or any(map(self._recent.drafts, used))

  def _begin_steps(self, program, weights, count, left):
    del left
    constrained = self._constraints(program)
    self._carry, produced = program.decode(
      weights,
      self._carry,
      self._table_on_device,
      self._numbers[count],
      constrained.allowed_BxM,
    )
    return produced, None

  def _begin_drafts(self, program, weights, count, left):
    past = jax.device_put(self._recent.copy(program.width), self._device)
    most = self._numbers[min(self._drafts.buffer, left)]
    self._carry, _, runs, produced = program.draft(
      weights,
      self._carry,
      past,
      self._table_on_device,
      drafts.Limits(most, self._numbers[count]),
      None,
      self._constraints(program),
    )
    return produced, runs

  def _constraints(self, program):
    """Returns what the rows of a program may choose, on the device."""
    if not self.constrained:
      return program.unconstrained
    copies = [x[: program.width].copy() for x in self._constrained]
    return jax.device_put(drafts.Constrained(*copies), self._device)

  def end(self) -> Call | None:
    """Waits for the call that was begun, and frees the rows that it ended.

    Returns:
      What it made; None if none was begun.
    """
    if self._begun is None:
      return None
    (produced, rows, runs, program), self._begun = self._begun, None
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
    if runs is not None:
      runs = drafts.Runs(*map(int, jax.device_get(runs)))
      self.drafted['tokens'] += max(call.made_B)
      self.drafted['runs'] += runs.all
    for slot, row in enumerate(rows):
      if row is not None:
        tokens = call.tokens_BxN[slot][: call.made_B[slot]]
        if self._drafts.tokens:
          self._recent.add(slot, tokens)
        if program.draft:
          gained, checks = 0, 0
          if runs is not None:
            gained, checks = len(tokens) - runs.all, runs.checks
          self._recent.judge(slot, gained, checks, program.check_cost)
        row.advance(tokens)
        if row.reason:
          self.free(row)
    return call
