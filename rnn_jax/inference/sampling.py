"""How tokens are chosen: options, and the table of a batch's on the device.

    z = (logits + bias, penalties, minimum length, allowed tokens) of the row
    p = softmax(z / temperature), restricted to the top_k most likely tokens,
        of these to the nucleus (the smallest set of them whose mass reaches
        top_p, at least one), and of these to p >= min_p max(p)

sampler.py computes it. Penalties: a repetition penalty r divides positive
logits of tokens that the prompt or the text has, and multiplies negative ones
(Keskar et al., "CTRL", 2019); presence and frequency penalties are subtracted
once, or once for each occurrence among the new tokens. Nucleus: Holtzman et
al., "The Curious Case of Neural Text Degeneration", 2020. min_p: Nguyen et al.,
"Turning Up the Heat: Min-p Sampling", 2024.

Shapes: a row's options B.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from rnn_jax import errors

GREEDY, ALL = -1, 0  # widths that sort nothing
MIN_WIDTH = 16  # tokens that a program with top_k sorts at least
WIDTH = 64  # tokens that the program of all options sorts for a small top_k
ALTERNATIVES = 20  # the most alternatives that a step reports
MAX_BIAS = 100.0  # of a bias or a penalty; larger ones say the same
MAX_COUNT = np.iinfo(np.int32).max
HOTTEST = 1e30  # a temperature or a penalty, within float32


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How the tokens of a text are chosen.

  Raises:
    InputError: a value is out of its range, on construction.
  """

  temperature: float = 1.0  # 0: the most likely token
  top_k: int = 0  # 0: all tokens
  top_p: float = 1.0  # in (0, 1]
  min_p: float = 0.0  # in [0, 1], of the most likely token's probability
  repetition_penalty: float = 1.0  # above 1 makes repetitions rarer
  presence_penalty: float = 0.0
  frequency_penalty: float = 0.0
  logit_bias: Mapping[int, float] = dataclasses.field(
    default_factory=dict, hash=False
  )

  def __post_init__(self):
    if not 0 <= self.temperature < math.inf:
      errors.refuse(
        'temperature', self.temperature, 'give a finite number >= 0'
      )
    if self.top_k < 0:
      errors.refuse('top_k', self.top_k, 'give 1 or more, or 0 for all tokens')
    if not 0 < self.top_p <= 1:
      errors.refuse('top_p', self.top_p, 'give a number in (0, 1]')
    if not 0 <= self.min_p <= 1:
      errors.refuse('min_p', self.min_p, 'give a number in [0, 1]')
    if not 0 < self.repetition_penalty < math.inf:
      errors.refuse(
        'repetition_penalty',
        self.repetition_penalty,
        'give a finite number above 0; 1 is no penalty',
      )
    limited = {
      'presence_penalty': self.presence_penalty,
      'frequency_penalty': self.frequency_penalty,
    } | {f'logit_bias[{token}]': x for token, x in self.logit_bias.items()}
    for name, value in limited.items():
      if not abs(value) <= MAX_BIAS:
        errors.refuse(name, value, f'give -{MAX_BIAS:g} to {MAX_BIAS:g}')

  @property
  def remembers(self) -> bool:
    """Whether it needs more than the logits: see sampler.Memory."""
    penalties = self.presence_penalty, self.frequency_penalty
    return (
      self.repetition_penalty != 1 or any(penalties) or bool(self.logit_bias)
    )

  def kind(self, vocabulary: int, adjusts: bool = False) -> 'Kind':
    """Returns the kind of program that samples with it, and no other way.

    Args:
      vocabulary: V.
      adjusts: whether anything else changes the logits.
    """
    width = ALL
    if not self.temperature:
      width = GREEDY
    elif self.top_k:
      width = max(MIN_WIDTH, 1 << (self.top_k - 1).bit_length())
    elif self.top_p < 1:
      width = vocabulary
    adjusts |= self.remembers
    return Kind((min(width, vocabulary),), adjusts, 0)


class Kind(NamedTuple):
  """What a program can sample: the less, the faster.

  Rows of several widths are in branches, each of which runs if any row needs
  it; a row gets the same bits either way, because its own numbers never pass
  through the branches of others.
  """

  widths: tuple[int, ...]  # GREEDY, ALL, or tokens that are sorted; rising
  adjusts: bool  # whether logits may change before
  alternatives: int  # most likely tokens to report, at most


def any_kind(vocabulary: int) -> Kind:
  """Returns the kind of a program for rows with any options."""
  widths = {GREEDY, ALL, min(WIDTH, vocabulary), vocabulary}
  return Kind((*sorted(widths),), True, min(ALTERNATIVES, vocabulary))


Column = Any  # an array with a value for each row; of `line`, a value


class Rows(NamedTuple):
  """The options of B rows. Rows that aren't active are computed and ignored.

  The defaults are those of such a row, and have the types of the columns.
  """

  active_B: Column = np.bool_(False)
  seed_B: Column = np.uint32(0)  # the low 32 bits
  seed_high_B: Column = np.uint32(0)  # the high 32 bits
  index_B: Column = np.uint32(0)  # of the row among those of one seed
  temperature_B: Column = np.float32(1)
  top_k_B: Column = np.int32(0)
  top_p_B: Column = np.float32(1)
  min_p_B: Column = np.float32(0)
  repetition_B: Column = np.float32(1)
  presence_B: Column = np.float32(0)
  frequency_B: Column = np.float32(0)
  biased_B: Column = np.bool_(False)
  constrained_B: Column = np.bool_(False)
  limit_B: Column = np.int32(0)  # new tokens, at most
  least_B: Column = np.int32(0)  # before the boundary may come
  boundary_B: Column = np.int32(-1)  # the token that ends the row; -1: none
  alternatives_B: Column = np.int32(0)  # most likely tokens to report
  adapter_B: Column = np.int32(0)  # of the model that makes the logits


UNUSED = Rows()


def make_table(B: int) -> Rows:
  """Returns the options of B rows that aren't active, on the host."""
  return Rows(*(np.full(B, value, value.dtype) for value in UNUSED))


def line(settings: Sampling) -> Rows:
  """Returns an active row with these settings and no others."""
  return UNUSED._replace(
    active_B=True,
    temperature_B=min(settings.temperature, HOTTEST),
    top_k_B=min(settings.top_k, MAX_COUNT),
    top_p_B=settings.top_p,
    min_p_B=settings.min_p,
    repetition_B=float(
      np.clip(settings.repetition_penalty, 1 / HOTTEST, HOTTEST)
    ),
    presence_B=settings.presence_penalty,
    frequency_B=settings.frequency_penalty,
    biased_B=bool(settings.logit_bias),
  )


def put(table: Rows, row: int, values: Rows) -> None:
  """Writes a row into a table on the host."""
  for column, value in zip(table, values, strict=True):
    column[row] = value


class Packed(NamedTuple):
  """Rows as two arrays, whose transfer costs less than that of many."""

  whole_NxB: Column  # int32; seeds by their bits
  real_NxB: Column  # float32


def pack(rows: Rows) -> Packed:
  """Returns options on the host as two new arrays."""
  whole = [x for x in rows if x.dtype != np.float32]
  real = [x for x in rows if x.dtype == np.float32]
  return Packed(
    np.stack([np.asarray(x).astype(np.int32) for x in whole]), np.stack(real)
  )


def unpack(packed: Packed) -> Rows:
  """Returns the options in a program; the inverse of `pack`."""
  whole, real = iter(packed.whole_NxB), iter(packed.real_NxB)
  return Rows(
    *(
      next(real) if x.dtype == np.float32 else next(whole).astype(x.dtype)
      for x in UNUSED
    )
  )
