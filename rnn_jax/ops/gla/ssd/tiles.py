"""Shapes and decays of a chunk that the kernels share."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from rnn_jax.ops.gla.mosaic import tiles as mosaic_tiles
from rnn_jax.ops.gla.pallas import tiles

MANY = 512  # programs that keep a large GPU busy
WIDE = 8192  # numbers of a program's tile of the state
HIGH = 64  # values of a tile of steps


class Plan(NamedTuple):
  """The static arguments that the kernels are specialized on."""

  operands: str
  interpret: bool
  B: int
  L: int
  H: int
  G: int
  K: int
  P: int
  chunk: int

  @property
  def N(self) -> int:
    return self.L // self.chunk

  @property
  def shared(self) -> int:
    """The heads of a group."""
    return self.H // self.G

  @property
  def stored(self) -> jax.typing.DTypeLike:
    """The dtype of operands in memory."""
    return jnp.bfloat16 if self.operands == 'bfloat16' else jnp.float32

  @property
  def parts(self) -> int:
    """How many bfloat16 numbers, 8 bits each, make a summand of a sum."""
    return mosaic_tiles.PARTS[self.operands]

  @property
  def logs(self) -> int:
    """The same of a sum of log-decays."""
    return max(self.parts, 2)

  @property
  def columns(self) -> int:
    """The share of P of a program that carries the state."""
    return min(self.P, HIGH, WIDE // self.K)

  @property
  def heads(self) -> int:
    """The heads of a program that sums over them: as many as leave enough."""
    programs = self.B * self.N * self.H
    fitting = (
      n
      for n in range(1, self.shared + 1)
      if self.shared % n == 0 and programs // n >= MANY
    )
    return max(fitting, default=1)


class Inputs(NamedTuple):
  """What has gradients, besides the state.

  Attributes:
    q: BxLxGxK.
    k: BxLxGxK.
    v: BxLxHxP.
    loga: BxLxH.
    rate: BxLxH.
    skip: H.
  """

  q: jax.Array
  k: jax.Array
  v: jax.Array
  loga: jax.Array
  rate: jax.Array
  skip: jax.Array


class Ends(NamedTuple):
  """The decays in a chunk of one head, from its ends.

  Attributes:
    since: d(0, i], C.
    until: d(j, C], C.
    total: d(0, C], a number.
  """

  since: jax.Array
  until: jax.Array
  total: jax.Array


def step_pairs(plan: Plan) -> tuple[jax.Array, jax.Array]:
  """Returns the indices of rows, Cx1, and of columns, 1xC."""
  # What depends on one of them takes few registers.
  row = jax.lax.broadcasted_iota(jnp.int32, (plan.chunk, 1), 0)
  return row, jax.lax.broadcasted_iota(jnp.int32, (1, plan.chunk), 1)


def steps(plan: Plan, n: Any) -> Any:
  """Returns the indices of the steps of chunk n."""
  return pl.ds(n * plan.chunk, plan.chunk)


def between(plan: Plan, loga: jax.Array) -> jax.Array:
  """Returns d(j, i] of each query i and key j, CxC; 0 if j > i."""
  i, j = step_pairs(plan)
  loga = jnp.maximum(loga, tiles.FORGOTTEN)
  later = jnp.where(i > j, loga[:, None], 0.0)  # of row t, in column j < t
  spans = tiles.sums(j <= i, later, plan.logs)
  return jnp.where(j <= i, jnp.exp(spans), 0.0)


def to_ends(plan: Plan, loga: jax.Array) -> Ends:
  """Returns the Ends; sums of logs are over just the steps between."""
  i, j = step_pairs(plan)
  loga = jnp.maximum(loga, tiles.FORGOTTEN)
  since = jnp.sum(jnp.where(j <= i, loga[None], 0.0), axis=1)
  until = jnp.sum(jnp.where(i > j, loga[:, None], 0.0), axis=0)
  return Ends(jnp.exp(since), jnp.exp(until), jnp.exp(jnp.sum(loga)))
