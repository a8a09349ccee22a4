"""Tiles, masks and sums that the kernels share."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from rnn_jax.ops import precision

SUB = 16  # the shortest side of a matmul on tensor cores
BLOCK = 64  # the most of K or P of a state that one program holds
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
DEFAULT = jax.lax.Precision.DEFAULT  # TF32 if float32; None asks the config
HALVES = (8, 4, 2, 1)


class Plan(NamedTuple):
  """The static arguments that a kernel is specialized on."""

  operands: str
  B: int
  L: int
  H: int
  K: int
  P: int
  chunk: int
  interpret: bool

  @property
  def N(self) -> int:
    return self.L // self.chunk

  @property
  def subs(self) -> int:
    return self.chunk // SUB

  @property
  def stored(self) -> jax.typing.DTypeLike:
    """The dtype of operands in memory."""
    return jnp.bfloat16 if self.operands == 'bfloat16' else jnp.float32

  @property
  def terms(self) -> int:
    """How many terms of its sums a matmul adds up at once.

    On Ampere its operands are in registers, too.
    """
    return BLOCK if self.operands == 'bfloat16' else SUB

  @property
  def warps(self) -> int:
    """Exact products don't use tensor cores and need twice the registers."""
    return 8 if self.operands == 'float32' else 4


def call(
  plan: Any,
  kernel: Callable[..., None],
  grid: dict[str, int],
  inputs: Sequence[tuple],
  outputs: Sequence[tuple],
  warps: int,
  stages: int = 1,
  suffix: str = '',
  heads: int = 1,
) -> tuple[jax.Array, ...]:
  """Runs `kernel` at each point of a grid, for each head of each sequence.

  Args:
    plan: the shapes, this Plan, ops/delta's or that of ops/gla/ssd.
    kernel: a function of one reference for each input and each output.
    grid: the size of each axis by name: n chunks, s sub-blocks in a chunk,
      i blocks of K, p blocks of P.
    inputs: (array, block, index) each. `index` names, for each axis of the
      array, the index of its block: an axis of the grid, b the sequence, h the
      head, g its group, m the sub-block counted over all chunks, 0 the only
      one.
    outputs: (shape, dtype, block, index) each.
    warps: of 32 threads, in one program.
    stages: loads that a loop prefetches.
    suffix: of the kernel's name.
    heads: of one program; h then counts as many at a time.

  Returns:
    The outputs.
  """

  rows = plan.H // heads

  def spec(block, index):
    def block_index(*point):
      *point, row = point
      at = dict(zip(grid, point, strict=True))
      at['b'], at['h'] = jax.lax.div(row, rows), jax.lax.rem(row, rows)
      if 's' in at:
        at['m'] = at['n'] * plan.subs + at['s']
      if 'g' in index:
        at['g'] = jax.lax.div(at['h'], plan.shared // heads)
      return tuple(at.get(name, 0) for name in index.split())

    return pl.BlockSpec(block, block_index)

  return pl.pallas_call(
    functools.partial(kernel, plan=plan),
    grid=(*grid.values(), plan.B * rows),
    in_specs=[spec(*rest) for _, *rest in inputs],
    out_specs=[spec(*rest) for _, _, *rest in outputs],
    out_shape=[jax.ShapeDtypeStruct(*of) for *of, _, _ in outputs],
    interpret=plan.interpret,
    compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
    name=getattr(kernel, 'func', kernel).__name__.strip('_') + suffix,
  )(*(array for array, *_ in inputs))


def dot(
  plan: Plan, x: jax.Array, y: jax.Array, axes: tuple[int, int] = (1, 0)
) -> jax.Array:
  """Returns the matmul of two tiles over the given axes, in float32."""
  x, y = x.astype(plan.stored), y.astype(plan.stored)
  exact = plan.operands == 'float32'
  if plan.operands == 'tf32' and plan.interpret:
    x, y, exact = precision.cut(x), precision.cut(y), True
  return jax.lax.dot_general(
    x,
    y,
    (((axes[0],), (axes[1],)), ((), ())),
    precision=jax.lax.Precision.HIGHEST if exact else DEFAULT,
    preferred_element_type=jnp.float32,
  )


def parts(plan: Plan, length: int, begin: jax.Array | int = 0) -> list[Any]:
  """Returns the indices of `length` terms of a sum, as many as matmuls take."""
  size = min(length, plan.terms)
  return [pl.ds(begin + start, size) for start in range(0, length, size)]


def sums(mask: jax.Array, x: jax.Array, parts: int = 3) -> jax.Array:
  """Returns mask @ x in float32 for a square mask, x in parts of 8 bits."""
  if x.shape[1] == 1:
    x = jnp.broadcast_to(x.reshape(1, -1), mask.shape)
    return jnp.sum(jnp.where(mask, x, 0.0), axis=1, keepdims=True)
  mask, sums = mask.astype(jnp.bfloat16), jnp.zeros(x.shape, jnp.float32)
  for part in reversed(_in_16_bits(x, parts)):
    sums += jnp.dot(
      mask, part, precision=DEFAULT, preferred_element_type=jnp.float32
    )
  return sums


def _in_16_bits(x, parts):
  """Returns bfloat16 arrays that sum to x: 3 x 8 bits are float32's 24.

  With them tensor cores add float32 numbers. Bits are truncated, since a
  compiler may optimize rounding to bfloat16 and back away.
  """
  made = []
  for _ in range(parts - 1):
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & -(2**16)
    part = jax.lax.bitcast_convert_type(bits, jnp.float32)
    made.append(part.astype(jnp.bfloat16))
    x = x - part
  return *made, x.astype(jnp.bfloat16)


def whole(x: jax.Array) -> jax.Array:
  """Returns the sum over a sub-block, 1xK."""
  return jnp.sum(x, axis=0, keepdims=True)


def step_pairs() -> tuple[jax.Array, jax.Array]:
  """Returns the row and the column indices of a 16x16 array."""
  row, column = (
    jax.lax.broadcasted_iota(jnp.int32, (SUB, SUB), n) for n in (0, 1)
  )
  return row, column


def from_start(loga: jax.Array) -> jax.Array:
  """Returns in row i the sum of all rows up to i."""
  i, t = step_pairs()
  return sums(t <= i, loga)


def to_end(loga: jax.Array) -> jax.Array:
  """Returns in row j the sum of all rows after j."""
  j, t = step_pairs()
  return sums(t > j, loga)


def since(x: jax.Array) -> jax.Array:
  """Returns in row t the sum of all from t on, `from_start` transposed."""
  t, i = step_pairs()
  return sums(i >= t, x)


def before(x: jax.Array) -> jax.Array:
  """Returns in row t the sum of all before t, `to_end` transposed."""
  t, j = step_pairs()
  return sums(j < t, x)


# A sub-block consists of pieces of 2 x half steps with a border in the middle.


def _late(i, half):
  """Returns whether step i is after the border of its piece."""
  return (i & half) != 0


def between_border_and(i: jax.Array, t: jax.Array, half: int) -> jax.Array:
  """Returns whether t is between the border and i; i itself is if it's late."""
  same_half = (i & ~(half - 1)) == (t & ~(half - 1))
  return same_half & jnp.where(_late(i, half), t <= i, t > i)


def decayed_to_border(
  q: jax.Array, k: jax.Array, loga: jax.Array, half: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
  """Decays queries after a border from it, and keys before it up to it.

  Returns:
    (q 16xK, k 16xK, decay 16xK, late 16x1, one_piece 16x16): 0 in the rows of
    q that are not late and those of k that are.
  """
  i, j = step_pairs()
  decay = jnp.exp(sums(between_border_and(i, j, half), loga))
  late = _late(jax.lax.broadcasted_iota(jnp.int32, (SUB, 1), 0), half)
  one_piece = (i & ~(2 * half - 1)) == (j & ~(2 * half - 1))
  q, k = jnp.where(late, q * decay, 0.0), jnp.where(late, 0.0, k * decay)
  return q, k, decay, late, one_piece


def rows(ref: Any, n: int | jax.Array) -> jax.Array:
  """Returns sub-block n of a chunk, in float32."""
  return ref[pl.ds(n * SUB, SUB), :].astype(jnp.float32)


def decays(ref: Any, n: int | jax.Array) -> jax.Array:
  """Returns the log-decays of sub-block n, FORGOTTEN or more."""
  return jnp.maximum(rows(ref, n), FORGOTTEN)
