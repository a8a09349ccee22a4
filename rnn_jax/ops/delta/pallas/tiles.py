"""Tiles of the delta rule's kernels: products in parts, masks and their sums.

All products are of bfloat16 numbers with float32 sums, on tensor cores: a
float32 factor is three of them, 24 bits; one in TF32 two, 16 bits. Log-decays
have two parts at least.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla.mosaic import tiles as mosaic_tiles
from rnn_jax.ops.gla.pallas import tiles
from rnn_jax.system import target

HOPPER = 9  # compute capability
MANY = 256  # programs that keep a large GPU busy
WIDE = 8192  # numbers of a program's tile of the state
WARPS = 4  # a warpgroup, whose matmuls are of 64 rows
# KiB of shared memory of a block of threads, by compute capability.
SHARED: dict[tuple[int, ...], int] = {(8, 0): 163, (9, 0): 227, (10, 0): 227}
LEAST_SHARED = 99  # of the other GPUs with tensor cores for bfloat16


class Plan(NamedTuple):
  """The static arguments that the kernels are specialized on."""

  operands: str
  interpret: bool
  B: int
  L: int
  H: int
  K: int
  P: int
  block: int
  by_head: bool  # a decay for each head
  general: bool

  @property
  def N(self) -> int:
    return self.L // self.block

  @property
  def W(self) -> int:
    """How many vectors a step writes by."""
    return 1 + self.general

  @property
  def inputs(self) -> tuple[str, ...]:
    """What `blocks.prepare` reads."""
    others = ('read', 'write') if self.general else ('beta',)
    return 'q', 'k', 'loga', *others

  @property
  def parts(self) -> int:
    """How many bfloat16 numbers make a factor."""
    return mosaic_tiles.PARTS[self.operands]

  @property
  def stored(self) -> jax.typing.DTypeLike:
    """The dtype of factors in memory."""
    return jnp.bfloat16 if self.parts == 1 else jnp.float32

  @property
  def wide(self) -> int:
    """The share of K of a tile of steps, for which registers are enough."""
    if self.parts > 1:
      return min(self.K, tiles.SUB)
    few = self.by_head or self.block <= tiles.BLOCK // 2
    return min(self.K, tiles.BLOCK if few else tiles.BLOCK // 2)

  @property
  def narrow(self) -> int:
    """The same in the kernel of gradients, which holds twice as many tiles."""
    long = self.block > tiles.BLOCK // 2
    return max(tiles.SUB, self.wide // 2) if long else self.wide

  @property
  def high(self) -> int:
    """The share of P of a tile of steps."""
    return min(self.P, tiles.BLOCK if self.parts == 1 else tiles.BLOCK // 2)

  @property
  def warps(self) -> int:
    """Of a kernel over keys, which holds many tiles."""
    return 8

  @property
  def state_columns(self) -> int:
    """The share of P of a program that carries the state."""
    # Its tile of the state, and what is split into parts, fit the registers;
    # before Hopper so must the operands of matmuls.
    if self.parts == 1:
      many = self.B * self.H * (self.P // 64) >= MANY
      return min(self.P, WIDE // self.K, 64 if many else 32)
    widest = 16 if target.capability() < (HOPPER,) else 32
    return min(self.P, WIDE // 2 // self.K, widest)

  def stages(self, factors: int) -> int:
    """How many blocks of `factors` of K columns are in shared memory."""
    high = self.state_columns
    of_block = self.block * (factors * self.K + self.block + high)
    two = 2 * self.parts * (2 * of_block + 2 * tiles.BLOCK * high)
    limit = SHARED.get(target.capability(), LEAST_SHARED)
    return 2 if two <= limit * target.KIB else 1


# Products.


def split(x: jax.Array, parts: int) -> list[jax.Array]:
  """Returns bfloat16 arrays that sum to x, as far as `parts` of 8 bits go."""
  made = []
  x = x.astype(jnp.float32) if parts > 1 else x
  for _ in range(parts - 1):
    # Rounded as integers: a compiler may optimize rounding to bfloat16 and back
    # away. Bits cut off instead would make all that is neglected of one sign.
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) + jnp.int32(2**15)
    part = jax.lax.bitcast_convert_type(bits & jnp.int32(-(2**16)), jnp.float32)
    made.append(part.astype(jnp.bfloat16))
    x = x - part
  return [*made, x.astype(jnp.bfloat16)]


def product(
  x: list[jax.Array], y: list[jax.Array], axes: tuple[int, int] = (1, 0)
) -> jax.Array:
  """Returns the matmul of two tiles in parts, in float32.

  Of three parts, six of nine products give 24 bits; of two, three give 16.
  """
  pairs = [
    (i, j)
    for i in range(len(x))
    for j in range(len(y))
    if i + j < max(len(x), len(y))
  ]
  pairs.sort(key=sum, reverse=True)  # the smallest first
  products = (
    jax.lax.dot_general(
      x[i],
      y[j],
      (((axes[0],), (axes[1],)), ((), ())),
      precision=tiles.DEFAULT,
      preferred_element_type=jnp.float32,
    )
    for i, j in pairs
  )
  return functools.reduce(jnp.add, products)


def loop(count: int, body: Any, carry: Any) -> Any:
  """Returns the carry after body(n, carry) for each n below `count`."""
  return (
    body(0, carry) if count == 1 else jax.lax.fori_loop(0, count, body, carry)
  )


def part(n: Any, width: int) -> Any:
  """Returns the indices of tile n along an axis."""
  return pl.ds(n * width, width)


# Steps of a block, and sums over some of them.


def step_pairs(plan: Plan) -> tuple[jax.Array, jax.Array]:
  """Returns the indices of rows, Cx1, and of columns, 1xC."""
  # What depends on one of them takes few registers.
  row = jax.lax.broadcasted_iota(jnp.int32, (plan.block, 1), 0)
  return row, jax.lax.broadcasted_iota(jnp.int32, (1, plan.block), 1)


def sums(
  plan: Plan, mask: jax.Array, x: jax.Array, transposed: bool = False
) -> jax.Array:
  """Returns mask @ x in float32, of x with a row for each step, or mask^T @ x.

  A column is added up exactly; of more, log-decays have two parts at least.
  """
  if x.shape[1] == 1 and transposed:
    return jnp.sum(jnp.where(mask, x, 0.0), axis=0).reshape(x.shape)
  if x.shape[1] == 1:
    x = jnp.broadcast_to(x.reshape(1, plan.block), mask.shape)
    return jnp.sum(jnp.where(mask, x, 0.0), axis=1, keepdims=True)
  parts = split(x, max(plan.parts, 2))
  return product([mask.astype(jnp.bfloat16)], parts, (1 - transposed, 0))
