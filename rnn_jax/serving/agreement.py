"""Whether an engine's programs give a row the same bits, on this device.

    rows      the bytes of each row after a call of a width's program
    drafts    whether a program with drafts gives those of single steps
    cost      how long a run that checks a draft takes

All begin from texts that were read, of which each row has one (reading.py).
"""

import statistics
import time
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

ROUNDS = 3  # of a measurement


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
  text = _write(program, start)
  wrong_BxN = text.tokens_BxN.copy()
  wrong = min(start.drafts.tokens // 2 + 1, wrong_BxN.shape[1] - 1)
  wrong_BxN[:, wrong] = (wrong_BxN[:, wrong] + 1) % text.vocabulary
  runs, bits = _write_drafted(program, start, wrong_BxN)
  return runs < start.drafts.buffer and bits == text.bits


def cost(program: widths.Program, start: Start) -> float:
  """Returns the time of a run that checks a right draft, in single steps."""
  text, ratios = _write(program, start), []
  for _ in range(ROUNDS):
    begin = time.perf_counter()
    _write(program, start)
    half = time.perf_counter()
    runs, _ = _write_drafted(program, start, text.tokens_BxN)
    end = time.perf_counter()
    ratios.append((end - half) / runs / (half - begin) * start.drafts.buffer)
  return statistics.median(ratios)


class _Text(NamedTuple):
  """What all rows write without drafts."""

  tokens_BxN: np.ndarray
  vocabulary: int
  bits: list[bytes]


def _write(program, start):
  """Returns the _Text of as many calls as make a call's tokens with drafts."""
  carry, options = start.rows(program)
  most, parts = start.put(np.int32(start.drafts.calls)), []
  allowed_BxM = program.unconstrained.allowed_BxM
  for _ in range(start.drafts.tokens + 1):
    carry, made = program.decode(
      start.weights, carry, options, most, allowed_BxM
    )
    parts.append(jax.device_get(made[1:]))
  wholes = [np.concatenate(each, 1) for each in zip(*parts, strict=True)]
  vocabulary = carry.logits_BxV.shape[1]
  return _Text(wholes[0], vocabulary, _bits(carry, wholes))


def _write_drafted(program, start, drafts_BxN):
  """Returns (runs, bits) of a call in which each row drafts these tokens."""
  recent = start.drafts.recent(program.width)
  for slot, tokens_N in enumerate(drafts_BxN):
    begin = tokens_N[:2]  # before the text, and where it was before
    recent.begin(slot, np.concatenate([begin, tokens_N, begin]))
  carry, options = start.rows(program)
  past = start.put(recent.copy(program.width))
  limit = start.put(np.int32(start.drafts.buffer))
  limits = drafts_lib.Limits(limit, limit)
  assert program.draft is not None
  given = start.weights, carry, past, options, limits, None
  carry, _, runs, made = program.draft(*given, program.unconstrained)
  return int(jax.device_get(runs.all)), _bits(carry, made[1:])


def _bits(carry, made):
  tree = jax.device_get((carry._replace(memory=None), made))
  return [x.tobytes() for x in jax.tree.leaves(tree)]
