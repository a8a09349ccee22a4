"""What the kernels of `gla_pallas` have in common: tiles, masks and sums."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

SUB = 16  # the shortest side of a matmul on tensor cores
BLOCK = 64  # of K or P, what one program holds of a state
FORGOTTEN = -1e4  # e^-1e4 is 0 in float32, and 0 times it is no NaN
DEFAULT = jax.lax.Precision.DEFAULT  # TF32 if float32; None asks the config
HALVES = (8, 4, 2, 1)


class Plan(NamedTuple):
  """What a kernel is specialized on; all static."""

  operands: str
  B: int
  L: int
  H: int
  K: int
  P: int
  chunk: int
  by_head: bool
  interpret: bool

  @property
  def N(self):
    return self.L // self.chunk

  @property
  def subs(self):
    return self.chunk // SUB

  @property
  def G(self):
    """The width of a decay."""
    return 1 if self.by_head else self.K

  @property
  def stored(self):
    """The format of what is multiplied, where it is kept in memory."""
    return jnp.bfloat16 if self.operands == 'bfloat16' else jnp.float32

  @property
  def warps(self):
    """Exact products leave the tensor cores and take twice the registers."""
    return 8 if self.operands == 'float32' else 4


def call(plan, kernel, grid, inputs, outputs, warps, stages=1):
  """Runs `kernel` at each place of a grid, for each head of each sequence.

  Args:
    plan: the shapes.
    kernel: a function of one reference for each input and each output.
    grid: the size of each axis by its letter: n chunks, s sub-blocks in one,
      i blocks of K, p blocks of P.
    inputs: (array, block, where) each. `where` says by a letter an axis which
      block is read: those of the grid, b for the sequence, h for the head, m
      for the sub-block counted over all chunks, 0 for the only one.
    outputs: (shape, dtype, block, where) each.
    warps: of 32 threads, that share one place.
    stages: loads that run ahead in a loop.

  Returns:
    The outputs.
  """

  def spec(block, where):
    def index(*place):
      *place, row = place
      at = dict(zip(grid, place, strict=True))
      at['b'], at['h'] = jax.lax.div(row, plan.H), jax.lax.rem(row, plan.H)
      if 's' in at:
        at['m'] = at['n'] * plan.subs + at['s']
      return tuple(at.get(letter, 0) for letter in where.split())

    return pl.BlockSpec(block, index)

  return pl.pallas_call(
    functools.partial(kernel, plan=plan),
    grid=(*grid.values(), plan.B * plan.H),
    in_specs=[spec(*rest) for _, *rest in inputs],
    out_specs=[spec(*rest) for _, _, *rest in outputs],
    out_shape=[jax.ShapeDtypeStruct(*of) for *of, _, _ in outputs],
    interpret=plan.interpret,
    compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=stages),
    name=getattr(kernel, 'func', kernel).__name__.strip('_'),
  )(*(array for array, *_ in inputs))


def dot(plan, x, y, axes=(1, 0)):
  """The matmul of two tiles over the given axes, summed in float32."""
  exact = plan.operands == 'float32'
  return jax.lax.dot_general(
    x.astype(plan.stored),
    y.astype(plan.stored),
    (((axes[0],), (axes[1],)), ((), ())),
    precision=jax.lax.Precision.HIGHEST if exact else DEFAULT,
    preferred_element_type=jnp.float32,
  )


def sums(mask, x):
  """mask @ x in float32 with a 16x16 mask; x is 16xG, G wide or 1."""
  if x.shape[1] == 1:
    x = jnp.broadcast_to(x.reshape(1, SUB), mask.shape)
    return jnp.sum(jnp.where(mask, x, 0.0), axis=1, keepdims=True)
  mask, sums = mask.astype(jnp.bfloat16), jnp.zeros(x.shape, jnp.float32)
  for part in reversed(_in_16_bits(x)):
    sums += jnp.dot(
      mask, part, precision=DEFAULT, preferred_element_type=jnp.float32
    )
  return sums


def _in_16_bits(x):
  """Three bfloat16 arrays that add up to x: 3 x 8 bits are float32's 24.

  They let tensor cores add float32 numbers. Bits are cut off, since a compiler
  may take rounding to bfloat16 and back for nothing at all.
  """
  parts = []
  for _ in range(2):
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & -(2**16)
    part = jax.lax.bitcast_convert_type(bits, jnp.float32)
    parts.append(part.astype(jnp.bfloat16))
    x = x - part
  return *parts, x.astype(jnp.bfloat16)


def whole(x):
  return jnp.sum(x, axis=0, keepdims=True)


def step_pairs():
  """Two 16x16 arrays, the number of the row and of the column."""
  shape = SUB, SUB
  return tuple(jax.lax.broadcasted_iota(jnp.int32, shape, n) for n in (0, 1))


def from_start(loga):
  """Row i: the sum of all up to i."""
  i, t = step_pairs()
  return sums(t <= i, loga)


def to_end(loga):
  """Row j: the sum of all after j."""
  j, t = step_pairs()
  return sums(t > j, loga)


def since(x):
  """Row t: the sum of all from t on; the transpose of `_from_start`."""
  t, i = step_pairs()
  return sums(i >= t, x)


def before(x):
  """Row t: the sum of all before t; the transpose of `_to_end`."""
  t, j = step_pairs()
  return sums(j < t, x)


# A sub-block is cut in pieces of 2 x half steps with a border in each middle.


def _late(i, half):
  """Whether step i is behind the border of its piece."""
  return (i & half) != 0


def passed(i, t, half):
  """Whether t is between the border and i; i itself is if it is late."""
  beside = (i & ~(half - 1)) == (t & ~(half - 1))
  return beside & jnp.where(_late(i, half), t <= i, t > i)


def about_borders(q, k, loga, half):
  """Queries behind a border and keys before it, decayed from and up to there.

  Returns:
    (q 16xK, k 16xK, decay 16xG, late 16x1, one_piece 16x16): 0 in the rows of
    q that are not late and those of k that are.
  """
  i, j = step_pairs()
  decay = jnp.exp(sums(passed(i, j, half), loga))
  late = _late(jax.lax.broadcasted_iota(jnp.int32, (SUB, 1), 0), half)
  one_piece = (i & ~(2 * half - 1)) == (j & ~(2 * half - 1))
  q, k = jnp.where(late, q * decay, 0.0), jnp.where(late, 0.0, k * decay)
  return q, k, decay, late, one_piece


def rows(ref, n):
  """Sub-block n of a chunk, in float32."""
  return ref[pl.ds(n * SUB, SUB), :].astype(jnp.float32)


def decays(ref, n):
  return jnp.maximum(rows(ref, n), FORGOTTEN)
