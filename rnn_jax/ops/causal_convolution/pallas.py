"""The convolution, its activation and a norm on a GPU: one pass each way.

    s_t = sum_{d<W} w_d * x_{t-d} + b        y = silu(s)
    z = y, or c y / sqrt(|y|^2 + e) of each head

Each program walks along time with a few channels, or those of one head, and has
the last W - 1 inputs in registers. Backward it computes s again, adds ds to the
gradients of the last W inputs, and stores the one that is then whole:

    dx_{t-d} += w_d * ds_t        dw_d += ds_t * x_{t-d}        db += ds_t

Steps that two programs share are computed twice. Sums are float32.
Shapes: x, z BxLxNxC of N tiles of channels, or heads; w WxNxC, b NxC; the state
Bx(W-1)xNxC. Kernels are Pallas's, lowered through Triton.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from rnn_jax.ops.gla import pallas as gla_pallas

STEPS = 128  # of a program
COLUMNS = 256  # of a program, without heads
OF_WARP = 128  # columns


class Plan(NamedTuple):
  """The static arguments that the kernels are specialized on."""

  interpret: bool
  L: int
  taps: int
  tiles: int  # N
  scale: float  # c; 0: no norm
  epsilon: float
  steps: int


def outputs(norm: Any, *inputs: Any) -> jax.Array:
  """Returns z_BxLxE in x's dtype.

  Args:
    norm: a causal_convolution.Norm.
    *inputs: the state, x_BxLxE, kernel_WxE, bias_E or None, starts_BxL or None,
      as of `causal_convolution.convolve`.

  Raises:
    NotImplementedError: the device isn't a GPU.
  """
  plan, arrays = _tiled(norm, *inputs)
  (z,) = _call(plan, _convolution, arrays, ('x',))
  return _joined(plan, z, inputs[1])


def gradients(
  norm: Any, inputs: tuple[Any, ...], dz_BxLxE: jax.Array
) -> list[jax.Array | None]:
  """Returns the gradients of the first four of `inputs`, in their dtypes.

  Args:
    norm: a causal_convolution.Norm, or None.
    inputs: as of `outputs`.
    dz_BxLxE: the gradient of z.

  Raises:
    NotImplementedError: the device isn't a GPU.
  """
  plan, arrays = _tiled(norm, *inputs)
  dz = _tiles(plan, dz_BxLxE.astype(inputs[1].dtype))
  dx, d_state, d_kernel, d_bias = _call(
    plan, _convolution_gradients, (*arrays, dz), ('x', 'state', 'taps', 'bias')
  )
  made = d_state, dx, d_kernel.sum((0, 1)), d_bias.sum((0, 1))
  return [
    None if x is None else _joined(plan, d, x).astype(x.dtype)
    for d, x in zip(made, inputs, strict=False)
  ]


def _tiled(norm, state, x, kernel, bias, starts):
  """Returns the Plan, and the inputs as tiles."""
  gla_pallas.check_device()
  (B, L, E), W, exact = x.shape, len(kernel), jnp.float32
  plan = Plan(
    interpret=gla_pallas.interpreted(),
    L=L,
    taps=W,
    tiles=norm.heads if norm else -(-E // COLUMNS),
    scale=norm.scale if norm else 0.0,
    epsilon=norm.epsilon if norm else 0.0,
    steps=min(STEPS, max(W, pl.next_power_of_2(L))),
  )
  bias = jnp.zeros((E,), exact) if bias is None else bias.astype(exact)
  floats = state.astype(x.dtype), x, kernel.astype(exact), bias
  return plan, (*(_tiles(plan, y) for y in floats), _reached(starts, B, L, W))


def _tiles(plan, x):
  """Returns ...xNxC of ...xE; C is a power of 2."""
  x = x.reshape(*x.shape[:-1], -1, x.shape[-1] // _heads(plan))
  width, N = x.shape[-1], plan.tiles // _heads(plan)
  C = pl.next_power_of_2(-(-width // N))
  x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, N * C - width)])
  return x.reshape(*x.shape[:-2], plan.tiles, C)


def _joined(plan, tiles, x):
  """Returns the part of some tiles that is of x, in its shape."""
  tiles = tiles.reshape(*tiles.shape[:-2], _heads(plan), -1)
  tiles = tiles[..., : x.shape[-1] // _heads(plan)]
  return tiles.reshape(*tiles.shape[:-2], -1)


def _heads(plan):
  return plan.tiles if plan.scale else 1


def _reached(starts, B, L, W):
  """Returns how many steps before each one are of its document, up to W."""
  if starts is None:
    return jnp.full((B, L), W, jnp.int32)
  place = jnp.arange(L, dtype=jnp.int32)[None]
  last = jax.lax.cummax(jnp.where(starts != 0, place, -W), 1)
  return jnp.minimum(place - last, W)


def _call(plan, kernel, inputs, results):
  """Runs a kernel for each tile of each row and some of its steps."""
  state, x, *_ = inputs
  (B, L, N, C), W, exact = x.shape, plan.taps, jnp.float32
  parts = pl.cdiv(L, plan.steps)

  def rows(length):
    return pl.BlockSpec((None, length, None, C), lambda t, n, b: (b, 0, n, 0))

  def of_part(*lengths):
    zeros = (0,) * len(lengths)
    return pl.BlockSpec(
      (None, None, *lengths, None, C), lambda t, n, b: (b, t, *zeros, n, 0)
    )

  made = {
    'x': ((B, parts * plan.steps, N, C), x.dtype, rows(parts * plan.steps)),
    'state': (state.shape, x.dtype, rows(W - 1)),
    'taps': ((B, parts, W, N, C), exact, of_part(W)),
    'bias': ((B, parts, N, C), exact, of_part()),
  }
  first, *others = pl.pallas_call(
    functools.partial(kernel, plan=plan),
    grid=(parts, N, B),
    in_specs=[
      rows(W - 1),
      rows(L),
      pl.BlockSpec((W, None, C), lambda t, n, b: (0, n, 0)),
      pl.BlockSpec((None, C), lambda t, n, b: (n, 0)),
      pl.BlockSpec((None, L), lambda t, n, b: (b, 0)),
      *[rows(L) for _ in inputs[5:]],
    ],
    out_specs=[made[name][2] for name in results],
    out_shape=[jax.ShapeDtypeStruct(*made[name][:2]) for name in results],
    interpret=plan.interpret,
    compiler_params=plgpu.CompilerParams(num_warps=max(1, C // OF_WARP)),
    name=kernel.__name__.strip('_'),
  )(*inputs)
  return first[:, :L], *others


class _Step(NamedTuple):
  """What a step's output and its gradient are computed from."""

  within: list[Any]  # for each tap, whether its input is of the document
  inputs: list[jax.Array]  # for each tap, x_{t-d} or 0
  sums: jax.Array


def _before(plan, state_ref, x_ref, begin):
  """Returns the inputs before a program's first step, the newest first."""
  return tuple(
    jnp.where(
      begin == 0,
      state_ref[plan.taps - 2 - d, :],
      x_ref[jnp.maximum(begin - 1 - d, 0), :],
    ).astype(jnp.float32)
    for d in range(plan.taps - 1)
  )


def _step(plan, refs, t, past):
  """Returns the _Step t and the inputs before the next one."""
  x_ref, kernel_ref, bias_ref, reached_ref = refs
  t = jnp.minimum(t, plan.L - 1)
  past = x_ref[t, :].astype(jnp.float32), *past
  reached = reached_ref[t]
  within = [d <= reached for d in range(plan.taps)]
  inputs = [past[0]]
  inputs += [
    jnp.where(near, x, 0.0) for near, x in zip(within, past, strict=True)
  ][1:]
  sums = bias_ref[...]
  for d, x in enumerate(inputs):
    sums += kernel_ref[d, :] * x
  return _Step(within, inputs, sums), past[:-1]


def _norm(plan, y):
  """Returns 1 / sqrt(|y|^2 + e)."""
  return jax.lax.rsqrt(jnp.sum(y * y) + plan.epsilon)


def _convolution(state_ref, *refs, plan):
  """Writes z; only with a norm, since XLA needs one pass too without it."""
  *refs, z_ref = refs
  begin = pl.program_id(0) * plan.steps

  def advance(n, past):
    step, past = _step(plan, refs, begin + n, past)
    y = step.sums * jax.nn.sigmoid(step.sums)
    z = plan.scale * _norm(plan, y) * y
    z_ref[begin + n, :] = z.astype(z_ref.dtype)
    return past

  first = _before(plan, state_ref, refs[0], begin)
  jax.lax.fori_loop(0, plan.steps, advance, first)


def _convolution_gradients(state_ref, *refs, plan):
  *refs, dz_ref, dx_ref, d_state_ref, d_kernel_ref, d_bias_ref = refs
  x_ref, kernel_ref, *_ = refs
  begin, W = pl.program_id(0) * plan.steps, plan.taps

  def advance(n, carry):
    past, partial, totals = carry
    t = begin + n
    step, past = _step(plan, refs, t, past)
    dz = dz_ref[jnp.minimum(t, plan.L - 1), :].astype(jnp.float32)
    dz = jnp.where(t < plan.L, dz, 0.0)
    gate = jax.nn.sigmoid(step.sums)
    if plan.scale:
      y = step.sums * gate
      norm = _norm(plan, y)
      met = norm * norm * jnp.sum(y * dz)
      dz = (plan.scale * norm) * (dz - met * y)
    ds = dz * (gate + step.sums * (gate - gate * gate))
    partial = [  # of x_t first
      partial[d - 1] + jnp.where(near, kernel_ref[d, :] * ds, 0.0)
      if d
      else kernel_ref[0, :] * ds
      for d, near in enumerate(step.within)
    ]
    own = jnp.where(n < plan.steps, ds, 0.0)  # the others are of the next
    totals = [
      total + own * x
      for total, x in zip(totals, (*step.inputs, 1.0), strict=True)
    ]
    *partial, whole = partial
    return (past, tuple(partial), tuple(totals)), whole

  zero = jnp.zeros(kernel_ref.shape[-1:], jnp.float32)
  carry = (
    _before(plan, state_ref, x_ref, begin),
    (zero,) * (W - 1),
    (zero,) * (W + 1),
  )
  for n in range(W - 1):
    carry, whole = advance(n, carry)

    @pl.when(begin == 0)
    def _(n=n, whole=whole):
      d_state_ref[n, :] = whole.astype(d_state_ref.dtype)

  def store(n, carry):
    carry, whole = advance(n + W - 1, carry)
    dx_ref[begin + n, :] = whole.astype(dx_ref.dtype)
    return carry

  *_, totals = jax.lax.fori_loop(0, plan.steps, store, carry)
  for d in range(W):
    d_kernel_ref[d, :] = totals[d]
  d_bias_ref[...] = totals[W]
