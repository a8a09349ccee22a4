"""Compares forms of the gated linear recurrence with a float64 loop.

The rows of a batch have different gates and resets, so that one compilation
covers all kinds. The error of a tensor (outputs, final state, gradients of all
five inputs) is max |got - want| / max size in a row, where size is the loop's
result for the inputs' absolute values: a sum that cancels isn't more accurate
than its terms. Where the size is 0, the result must be 0.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rnn_jax.ops import gla
from rnn_jax.ops import precision
from rnn_jax.ops.gla import native as gla_native
from rnn_jax.ops.gla import oracle as gla_oracle
from rnn_jax.selfcheck import base

GATES = {
  'sigmoid': lambda rng, shape: -np.logaddexp(0, -rng.normal(size=shape)),
  'zero': lambda rng, shape: np.full(shape, -np.inf),
  '1e-30': lambda rng, shape: np.full(shape, np.log(1e-30)),
  'exp(-50)': lambda rng, shape: np.full(shape, -50.0),
  'one': lambda rng, shape: np.zeros(shape),
  'nearly one': lambda rng, shape: -1e-4 * rng.exponential(size=shape),
  'mixture': lambda rng, shape: rng.choice(
    [-np.inf, -1e4, np.log(1e-30), -50, -1, -1e-6, 0], size=shape
  ),
  'large values': lambda rng, shape: -rng.exponential(size=shape),
}
SHARED = 'shared'  # one decay a head, and keys of all heads
DECAYS = ('key', 'head', SHARED)
STARTS = ('none', 'first', 'several')  # a row of each for each kind of gate
SCALES = {'q': 1e12, 'k': 1e-9, 'v': 1e15}  # of the row 'large values'

# The largest error of any tensor with float32 inputs; measured on a CPU, over
# all kinds of rows, at widths 3x4 and 32x64.
BOUNDS = {
  'step': 2e-7,  # measured: 8.6e-8
  'scan': 1e-6,  # 4.0e-7
  'associative': 5e-7,  # 1.8e-7
  'chunked': 5e-7,  # 2.0e-7
  'native': 1e-6,  # 4.0e-7: step by step, as 'scan'
  'pallas': 5e-7,  # 2.7e-7, interpreted; 3.0e-7 on an H100
}
# With bfloat16 inputs the states are float32 and keep the bounds above. Other
# tensors are stored with 8 bits: their rounding is up to 2^-8 = 3.9e-3.
BOUND_BFLOAT16 = 2**-8 + 1e-6  # measured: 3.1e-3
IN_FLOAT32 = ('state', 'd_state')
# Kernels multiply bfloat16 numbers, states too: a result has up to four
# roundings of 2^-9 (query, key, score, output).
BOUND_BFLOAT16_OPERANDS = 2**-7  # 5.7e-3, on an H100
# With float32 inputs those of matmuls are rounded as well, with up to eight
# roundings: of 2^-9 in bfloat16, and in TF32 of 2^-10, as bits are cut off.
BOUNDS_OF_OPERANDS = {
  'tf32': 2**-8,  # 2.4e-3
  'bfloat16': 2**-6,  # 9.8e-3
}


# (inputs, starts_BxL, cotangents of the state and y).
Drawn = tuple[gla_oracle.Inputs, np.ndarray, tuple[np.ndarray, np.ndarray]]


def cases() -> Iterator[base.Case]:
  """Yields each implementation that this device can run, at several shapes."""
  for impl in implementations():
    lengths = (1,) if impl == 'step' else (1, 17, 130)
    for decay in DECAYS:
      for L in lengths:
        for dtype in ('float32', 'bfloat16'):
          read = gla.READS[L % 2]
          half = impl == 'pallas' and dtype == 'bfloat16'
          operands = 'bfloat16' if half else 'float32'
          yield base.Case(impl, L, 3, 4, decay, read, dtype, operands)
      yield base.Case(impl, lengths[-1], 32, 64, decay)
      if impl in precision.MULTIPLYING:
        for operands in BOUNDS_OF_OPERANDS:
          yield base.Case(impl, lengths[-1], 32, 64, decay, operands=operands)


def implementations() -> list[str]:
  """Returns the implementations that this device can run."""
  from rnn_jax.ops.gla import pallas as gla_pallas

  lacking = {
    'native': bool(gla_native.lacking()),
    'pallas': not gla_pallas.runs_here(),
  }
  return [impl for impl in BOUNDS if not lacking.get(impl)]


def check(case: base.Case) -> base.Result:
  """Runs one case."""
  drawn = draw(case.L, case.decay, case.dtype, K=case.K, P=case.P)
  worst = base.Result(case, -1.0, 1.0, '')
  found = errors(*drawn, case.impl, read=case.read, operands=case.operands)
  for name, by_row in found.items():
    bound = bound_of(case, name)
    row = int(np.argmax(by_row))
    if by_row[row] / bound > worst.error / worst.bound:
      where = f'{name}, gates {row_names()[row]}'
      worst = base.Result(case, float(by_row[row]), bound, where)
  return worst


def bound_of(case: base.Case, tensor: str) -> float:
  """Returns the largest error that `tensor` may have."""
  if case.operands == case.dtype == 'bfloat16':
    return BOUND_BFLOAT16_OPERANDS
  if case.operands in BOUNDS_OF_OPERANDS:
    return BOUNDS_OF_OPERANDS[case.operands]
  if case.dtype == 'bfloat16' and tensor not in IN_FLOAT32:
    return BOUND_BFLOAT16
  return BOUNDS[case.impl]


def row_names() -> list[str]:
  """Returns the name of each row of `draw`."""
  return [f'{gate}, starts: {start}' for gate in GATES for start in STARTS]


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def forward_and_backward(
  inputs: gla_oracle.Inputs,
  starts: jax.Array,
  cotangents: tuple[jax.Array, jax.Array],
  impl: str,
  chunk_length: int | None = 64,
  read: str = 'after',
  operands: str | None = None,
) -> tuple[tuple[jax.Array, jax.Array], gla_oracle.Inputs]:
  """Returns (state, y) and the gradients of all inputs."""

  def run(*x):
    return gla.recurrence(
      *x,
      starts_BxL=starts,
      impl=impl,
      chunk_length=chunk_length,
      read=read,
      operands=operands,
    )

  out, back = jax.vjp(run, *inputs)
  return out, gla_oracle.Inputs(*back(cotangents))


def draw(
  L: int,
  decay: str = 'key',
  dtype: str = 'float32',
  H: int = 2,
  K: int = 3,
  P: int = 4,
  seed: int = 0,
  groups: int = 0,
) -> Drawn:
  """Returns random inputs with a row for each kind of gate and start.

  Heads are in `groups` that share keys; 0: each has its own, unless `decay` is
  SHARED.
  """
  rng, rows = np.random.default_rng(seed), len(GATES) * len(STARTS)
  G = groups or {SHARED: 1}.get(decay, H)

  def normal(*shape):
    return rng.normal(size=(rows, *shape)).astype(np.float32)

  wide = (len(STARTS), L, H, K if decay == 'key' else 1)
  loga = np.concatenate([gate(rng, wide) for gate in GATES.values()])
  values = {'q': normal(L, G, K), 'k': normal(L, G, K), 'v': normal(L, H, P)}
  for name, scale in SCALES.items():
    values[name][-len(STARTS) :] *= scale
  values = {name: x.astype(dtype) for name, x in values.items()}
  loga = loga.astype(np.float32).astype(dtype)
  inputs = gla_oracle.Inputs(normal(H, K, P), **values, loga=loga)
  several = (rng.random((rows, L)) < 0.15) | (np.arange(L) == L // 2)
  kind = np.arange(rows)[:, None] % len(STARTS)
  starts = np.where(kind == 1, np.arange(L) == 0, several & (kind == 2))
  cotangents = normal(H, K, P), normal(L, H, P).astype(dtype)
  return inputs, starts.astype(np.int32), cotangents


def errors(
  inputs: gla_oracle.Inputs,
  starts: np.ndarray,
  cotangents: tuple[np.ndarray, np.ndarray],
  impl: str,
  chunk_length: int | None = 64,
  read: str = 'after',
  operands: str | None = None,
) -> dict[str, np.ndarray]:
  """Returns the error of each tensor in each row, {name: errors_B}."""
  drawn = inputs, starts, cotangents
  got = forward_and_backward(
    *jax.device_put(drawn), impl, chunk_length, read, operands
  )
  return compare(jax.device_get(got), drawn, read)


def compare(got: Any, drawn: Drawn, read: str) -> dict[str, np.ndarray]:
  """Returns `errors`, from the result of `forward_and_backward`."""
  inputs, starts, cotangents = drawn
  want = _oracle(inputs, starts, cotangents, read)
  positive = inputs._replace(
    **{name: abs(np.float64(getattr(inputs, name))) for name in 'qkv'},
    state=abs(np.asarray(inputs.state)),
  )
  sizes = _oracle(
    positive, starts, [abs(np.float64(x)) for x in cotangents], read
  )
  names = ('state', 'y', *(f'd_{name}' for name in inputs._fields))
  got = (*got[0], *got[1])
  return dict(zip(names, map(relative, got, want, sizes), strict=True))


def _oracle(inputs, starts, cotangents, read):
  forward = gla_oracle.forward(inputs, starts, read)
  backward = gla_oracle.backward(inputs, starts, *cotangents, read)
  return (*forward, *backward)


def relative(got: np.ndarray, want: np.ndarray, size: np.ndarray) -> np.ndarray:
  """Returns max |got - want| / max size of each row; infinite for NaN."""
  got, want, size = (
    np.asarray(x, np.float64).reshape(len(x), -1) for x in (got, want, size)
  )
  wrong, size = abs(got - want).max(1), size.max(1)
  error = np.where(wrong == 0, 0.0, wrong / np.where(size > 0, size, 1e-300))
  return np.where(np.isfinite(error), error, np.inf)
