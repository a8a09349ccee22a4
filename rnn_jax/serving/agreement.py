"""Whether an engine's programs give a row the same bits, on this device.

    rows      the bytes of each row after a call of a width's program
    drafts    whether a program with drafts gives those of single steps

All begin from texts that were read, of which each row has one (reading.py).
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from rnn_jax.inference import decode
from rnn_jax.inference import drafts as drafts_lib
from rnn_jax.inference import sampler
from rnn_jax.inference import sampling
from rnn_jax.serving import prefixes
from rnn_jax.serving import widths


class Start(NamedTuple):
  """What rows begin with.

  Attributes:
    weights: what the model computes with.
    read: texts that were read with an adapter.
    adapter: its number.
    memory: of a row without penalties.
    drafts: how rows draft; its `calls` are those of a call without drafts.
  """

  weights: decode.Weights
  read: Sequence[prefixes.Entry]
  adapter: int
  memory: sampler.Memory
  drafts: widths.Drafts

  def rows(self, program: widths.Program) -> tuple[decode.Carry, Any]:
    """Returns (carry, options) of a program's rows."""
    carry, width = program.empty(), program.width
    for slot in range(width):
      read = self.read[slot % len(self.read)]
      given = self.put(np.int32(slot)), read.state, read.logits_1xV
      carry = program.place(carry, *given, self.memory)
    table = sampling.make_table(width)
    table.active_B[:] = True
    table.limit_B[:] = self.drafts.buffer
    table.adapter_B[:] = self.adapter
    return carry, self.put(sampling.pack(table))

  def put(self, x: Any) -> Any:
    """Returns arrays on the device."""
    return jax.device_put(x, self.weights.device)


def rows(program: widths.Program, start: Start) -> list[list[bytes]]:
  """Returns the bytes of each row after a call."""
  carry, options = start.rows(program)
  most = start.put(np.int32(start.drafts.calls))
  given = start.weights, carry, options, most, program.unconstrained.allowed_BxM
  leaves = jax.tree.leaves(jax.device_get(program.decode(*given)))
  return [[x[slot].tobytes() for x in leaves] for slot in range(program.width)]


def drafts(program: widths.Program, start: Start) -> bool:
  """Returns whether rows have the same bits with drafts, right and wrong."""
  count, calls = start.drafts.tokens, start.drafts.calls
  carry, options = start.rows(program)
  most, parts = start.put(np.int32(calls)), []
  for _ in range(count + 1):
    given = (
      start.weights,
      carry,
      options,
      most,
      program.unconstrained.allowed_BxM,
    )
    carry, made = program.decode(*given)
    parts.append(jax.device_get(made[1:]))
  wholes = [np.concatenate(each, 1) for each in zip(*parts, strict=True)]
  wanted = _bits(carry, wholes)
  recent = start.drafts.recent(program.width)
  for slot, tokens_N in enumerate(wholes[0]):
    seen_N = tokens_N.copy()
    wrong = min(count // 2 + 1, len(seen_N) - 1)
    seen_N[wrong] = (seen_N[wrong] + 1) % carry.logits_BxV.shape[1]
    begin = tokens_N[:2]  # before the text, and where it was before
    recent.begin(slot, np.concatenate([begin, seen_N, begin]))
  carry, options = start.rows(program)
  past = start.put(recent.copy(program.width))
  limit = start.put(np.int32(start.drafts.buffer))
  limits = drafts_lib.Limits(limit, limit)
  assert program.draft is not None
  carry, _, runs, made = program.draft(
    start.weights,
    carry,
    past,
    options,
    limits,
    None,
    program.unconstrained,
  )
  fewer = int(jax.device_get(runs.all)) < start.drafts.buffer
  return fewer and _bits(carry, made[1:]) == wanted


def _bits(carry, made):
  tree = jax.device_get((carry._replace(memory=None), made))
  return [x.tobytes() for x in jax.tree.leaves(tree)]
