"""The delta rule on a GPU: a Pallas kernel carries the state through blocks.

The equations are those of chunked.py, whose blocks are parallel but for the
state S before each. With u the rows that a block writes by w, and v those that
it writes by k in the general form,

    u = own + weights S      S <- diag(b) S + w^T u + k^T v
    y = q S + A [v; u]

One kernel, parallel over rows, heads and columns of the state, keeps a tile of
K x P' in registers through all blocks of a chunk, and stores u and S. With D
the gradient of the state after a block, the backward pass is alike:

    e = A_u^T dy + w D       D <- diag(b) D + weights^T e + q^T dy

so that the same kernel stores e and D, from the last block to the first. The
rest has no order, and is left to XLA's matmuls:

    d_own = e    d_weights = e S^T    dw = u D^T    db = sum_P D * S
    dq = dy S^T  dA = dy [v; u]^T     dk = v D^T    dv = A_v^T dy + k D

All products in the kernel are of bfloat16 numbers with float32 sums, on tensor
cores: a float32 factor is three of them, 24 bits; one in TF32 two, 16 bits.

A chunk is as long as memory allows, so that there are few launches: the
backward pass holds what a chunk's blocks are made from.

Shapes, of BH rows and heads, N blocks of c steps, W writers: b NxBHx1xK; w, k,
q, weights NxBHxcxK; own, u, v NxBHxcxP; A NxBHxWxcxc; S, D NxBHxKxP.
Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over
Sequence Length", 2024.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from rnn_jax.ops import precision
from rnn_jax.ops.delta import chunked as delta_chunked
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.ops.gla.mosaic import tiles as mosaic_tiles
from rnn_jax.ops.gla.pallas import tiles
from rnn_jax.system import target

HOPPER = 9  # compute capability
LONGEST = 64  # steps of a block
WARPS = 4  # a warpgroup, whose matmuls are of 64 rows
MANY = 256  # programs that keep a large GPU busy
MEMORY = 2**30  # bytes that the blocks of a chunk may take
WIDE = 8192  # numbers of a program's tile of the state
# KiB of shared memory of a block of threads, by compute capability.
SHARED: dict[tuple[int, ...], int] = {(8, 0): 163, (9, 0): 227, (10, 0): 227}
LEAST_SHARED = 99  # of the other GPUs with tensor cores for bfloat16


def run(
  state: jax.Array,
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  a: jax.Array,
  others: tuple[jax.Array, ...],
  chunk_length: int | None = None,
  operands: str = 'float32',
) -> tuple[jax.Array, jax.Array]:
  """Runs either recurrence over time, as delta_chunked.run.

  Args:
    state: BxHxKxP, before the first step.
    q: BxLxHxK.
    k: BxLxHxK.
    v: BxLxHxP.
    a: the decays, BxLxHxK or BxLxHx1.
    others: (beta BxLxH,), or (r, w) of the general form.
    chunk_length: steps between stored states, rounded up to whole blocks; None:
      as many as MEMORY allows.
    operands: one of precision.RECURRENT, the format of the matmuls' operands.

  Returns:
    (state BxHxKxP, y BxLxHxP), float32.

  Raises:
    NotImplementedError: the device isn't a GPU, or K or P is above
      gla_pallas.WIDEST.
  """
  gla_pallas.check_device()
  gla_pallas.check_widths(q.shape[-1], v.shape[-1])
  return delta_chunked.run(
    state,
    q,
    k,
    v,
    a,
    others,
    chunk_length or _chunk_length(q.shape, v.shape[-1], len(others)),
    operands,
    LONGEST,
    functools.partial(_carry, gla_pallas.interpreted()),
  )


def _chunk_length(shape, P, writers):
  """Returns the steps of a chunk whose blocks take MEMORY."""
  B, _, H, K = shape
  joins = LONGEST.bit_length() - 1
  step = 4 * B * H * (joins * (writers + 2) * K + 8 * P)
  return max(LONGEST, MEMORY // step)


class Plan(NamedTuple):
  """The static arguments that the kernel is specialized on."""

  operands: str
  interpret: bool
  N: int
  rows: int  # of all heads
  c: int
  K: int
  P: int

  @property
  def parts(self) -> int:
    """How many bfloat16 numbers make a factor in the kernel."""
    return mosaic_tiles.PARTS[self.operands]

  @property
  def stored(self) -> jax.typing.DTypeLike:
    """The dtype of operands in memory."""
    return jnp.bfloat16 if self.parts == 1 else jnp.float32

  @property
  def high(self) -> int:
    """One program's share of P."""
    # Its tile of the state, and what is split into parts, fit the registers;
    # before Hopper so must the operands of matmuls.
    if self.parts == 1:
      many = self.rows * (self.P // 64) >= MANY
      return min(self.P, WIDE // self.K, 64 if many else 32)
    widest = 16 if target.capability() < (HOPPER,) else 32
    return min(self.P, WIDE // 2 // self.K, widest)

  def stages(self, given: bool) -> int:
    """How many blocks of factors are in shared memory at a time."""
    widths = (3 * self.K + self.high) if given else 2 * self.K
    state_and_rows = 2 * tiles.BLOCK * self.high
    two = 2 * self.parts * (2 * self.c * widths + state_and_rows)
    limit = SHARED.get(target.capability(), LEAST_SHARED)
    return 2 if two <= limit * target.KIB else 1

  def multiply(self, spec: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns an einsum of two factors outside of the kernel."""
    return precision.einsum(spec, x, y, self.operands)


def _carry(interpret, operands, state, blocks):
  """A delta_chunked.Carry; pads to what the kernel's matmuls need."""
  rows, (*_, c, K), P = len(state), blocks.writers.shape, state.shape[-1]
  steps, keys, values = (
    max(tiles.SUB, pl.next_power_of_2(n)) - n for n in (c, K, P)
  )

  def pad(x, last, steps=steps):
    # Appended steps and keys write nothing and read nothing.
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, steps), (0, last)])
    return x.reshape(-1, rows, *x.shape[1:])

  decay = jnp.broadcast_to(blocks.decay, (*blocks.decay.shape[:2], K))
  padded = delta_chunked.Blocks(
    decay=pad(decay, keys, 0),
    writers=pad(blocks.writers, keys),
    own=pad(blocks.own, values),
    weights=pad(blocks.weights, keys),
    readers=pad(blocks.readers, keys),
    scores=pad(blocks.scores, steps),
  )
  plan = Plan(
    operands=operands,
    interpret=interpret,
    N=len(padded.decay),
    rows=rows,
    c=c + steps,
    K=K + keys,
    P=P + values,
  )
  state = jnp.pad(state, [(0, 0), (0, keys), (0, values)])
  state, y = _run(plan, state, padded)
  return state[:, :K, :P], y[:, :, :c, :P].reshape(-1, c, P)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(plan, state, blocks):
  return _forward(plan, state, blocks)[0]


def _forward(plan, state, blocks):
  *given, by = _by_writer(blocks.writers)
  *given_rows, own = _by_writer(blocks.own)
  u, states, last = run_states(
    plan,
    state,
    blocks.decay,
    (blocks.weights, own, by),
    (*given, *given_rows),
  )
  rows = jnp.stack([*(x.astype(u.dtype) for x in given_rows), u], 2)
  y = plan.multiply('nbik,nbkp->nbip', blocks.readers, states)
  y += plan.multiply('nbwij,nbwjp->nbip', blocks.scores, rows)
  return (last, y), (blocks, rows, states)


def _by_writer(x):
  return [x[:, :, n] for n in range(x.shape[2])]


def _backward(plan, residuals, cotangents):
  blocks, rows, states = residuals
  d_state, dy = cotangents
  multiply = plan.multiply
  *given, by = _by_writer(blocks.writers)
  d_rows = multiply('nbwij,nbip->nbwjp', blocks.scores, dy)
  *d_given, d_own = _by_writer(d_rows)
  e, d_states, d_state = run_states(
    plan,
    d_state,
    blocks.decay,
    (by, d_own, blocks.weights),
    (blocks.readers, dy),
    reverse=True,
  )
  d_given = [
    x + multiply('nbjk,nbkp->nbjp', writers, d_states)
    for x, writers in zip(d_given, given, strict=True)
  ]
  d_decay = states.astype(jnp.float32) * d_states.astype(jnp.float32)
  return d_state, delta_chunked.Blocks(
    decay=jnp.sum(d_decay, -1)[:, :, None],
    writers=multiply('nbwjp,nbkp->nbwjk', rows, d_states),
    own=jnp.stack([*d_given, e.astype(jnp.float32)], 2),
    weights=multiply('nbip,nbkp->nbik', e, states),
    readers=multiply('nbip,nbkp->nbik', dy, states),
    scores=multiply('nbip,nbwjp->nbwij', dy, rows),
  )


_run.defvjp(_forward, _backward)


def run_states(
  plan: Plan,
  state: jax.Array,
  decay: jax.Array,
  chained: tuple[jax.Array, jax.Array, jax.Array],
  given: tuple[jax.Array, ...],
  reverse: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Runs the state over all blocks.

  Args:
    plan: the shapes.
    state: BHxKxP, before the first block.
    decay: NxBHx1xK.
    chained: (weights, own, writers): rows that depend on the state.
    given: (writers, rows) that don't, or ().
    reverse: whether to run from the last block to the first.

  Returns:
    (rows NxBHxcxP, the state before each block NxBHxKxP, the last BHxKxP);
    before and last in the direction of the run.
  """
  weights, own, writers = chained
  factors = [_factor(plan, x) for x in (weights, writers, *given)]

  def spec(*block, wide=False):
    """Blocks of one row; the last axis is divided if it's that of P."""
    axes = len(block)

    def index(p, row):
      at = [0] * axes
      at[block.index(None)], at[-1] = row, p if wide else 0
      return tuple(at)

    return pl.BlockSpec(block, index)

  N, parts, c, K, high = plan.N, plan.parts, plan.c, plan.K, plan.high
  tile = spec(None, K, high, wide=True)
  rows = spec(N, None, c, high, wide=True)
  of_keys = spec(parts, N, None, c, K)
  of_values = spec(parts, N, None, c, high, wide=True)
  return pl.pallas_call(
    functools.partial(_states_kernel, plan=plan, reverse=reverse),
    grid=(plan.P // high, plan.rows),
    in_specs=[
      tile,
      spec(N, None, 1, K),
      rows,
      of_keys,
      of_keys,
      *(of_keys, of_values)[: len(given)],
    ],
    out_specs=[rows, spec(N, None, K, high, wide=True), tile],
    out_shape=[
      jax.ShapeDtypeStruct(own.shape, plan.stored),
      jax.ShapeDtypeStruct((N, *state.shape), plan.stored),
      jax.ShapeDtypeStruct(state.shape, jnp.float32),
    ],
    interpret=plan.interpret,
    compiler_params=plgpu.CompilerParams(
      num_warps=WARPS, num_stages=plan.stages(bool(given))
    ),
    name=f'delta_states{"_reverse" if reverse else ""}',
  )(state, decay, own, *factors)


def _factor(plan, x):
  """Splits a factor of the kernel's products, so that it loads bfloat16."""
  return jnp.stack(_split(x.astype(jnp.float32), plan.parts))


def _states_kernel(
  state_ref, decay_ref, own_ref, weights_ref, writers_ref, *refs, plan, reverse
):
  *given, rows_ref, states_ref, last_ref = refs
  blocks_of_keys = [
    pl.ds(start, min(plan.K, tiles.BLOCK))
    for start in range(0, plan.K, tiles.BLOCK)
  ]

  def load(ref, n, columns=slice(None)):
    return [ref[part, n, :, columns] for part in range(plan.parts)]

  def advance(n, state):
    n = plan.N - 1 - n if reverse else n
    rows = own_ref[n, :, :].astype(jnp.float32)
    for keys, block in zip(blocks_of_keys, state, strict=True):
      states_ref[n, keys, :] = block.astype(states_ref.dtype)
      factor = _split(block, plan.parts)
      rows += _product(load(weights_ref, n, keys), factor)
    rows_ref[n, :, :] = rows.astype(rows_ref.dtype)
    factor = _split(rows, plan.parts)
    new = []
    for keys, block in zip(blocks_of_keys, state, strict=True):
      kept = decay_ref[n, 0, keys][:, None] * block
      written = _product(load(writers_ref, n, keys), factor, (0, 0))
      if given:
        by_ref, given_ref = given
        written += _product(load(by_ref, n, keys), load(given_ref, n), (0, 0))
      new.append(kept + written)
    return tuple(new)

  state = tuple(state_ref[keys, :] for keys in blocks_of_keys)
  state = jax.lax.fori_loop(0, plan.N, advance, state)
  for keys, block in zip(blocks_of_keys, state, strict=True):
    last_ref[keys, :] = block


def _split(x, parts):
  """Returns bfloat16 arrays that sum to x, as far as `parts` of 8 bits go."""
  made = []
  for _ in range(parts - 1):
    # Rounded as integers: a compiler may optimize rounding to bfloat16 and back
    # away. Bits cut off instead would make all that is neglected of one sign.
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) + jnp.int32(2**15)
    part = jax.lax.bitcast_convert_type(bits & jnp.int32(-(2**16)), jnp.float32)
    made.append(part.astype(jnp.bfloat16))
    x = x - part
  return [*made, x.astype(jnp.bfloat16)]


def _product(x, y, axes=(1, 0)):
  """Returns the matmul of two tiles in parts, in float32.

  Of three parts, six of nine products give 24 bits; of two, three give 16.
  """
  pairs = [(i, j) for i in range(len(x)) for j in range(len(x) - i)]
  pairs.sort(key=sum, reverse=True)  # the smallest first
  return sum(
    jax.lax.dot_general(
      x[i],
      y[j],
      (((axes[0],), (axes[1],)), ((), ())),
      precision=tiles.DEFAULT,
      preferred_element_type=jnp.float32,
    )
    for i, j in pairs
  )
