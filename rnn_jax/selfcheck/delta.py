"""Compares forms of the delta rule with a float64 loop.

Of both, `recurrence` and `general_recurrence`. The rows of a batch have
different gates: none forgets, or some do, up to gates of exactly 0; rates are 0
to 2, and a row is a product of reflections. The error of a tensor is its
largest, divided by the largest number of the tensor.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rnn_jax.ops import delta
from rnn_jax.ops import precision
from rnn_jax.ops.delta import native as delta_native
from rnn_jax.ops.delta import oracle as delta_oracle
from rnn_jax.selfcheck import base

RUN = {'delta': delta.recurrence, 'general': delta.general_recurrence}
GATES = (-np.inf, -1e6, -100, -20, -1, -1e-3, 0)
BETAS = (0, 0.3, 1, 1.7, 2)
ROWS = 8
CLOSE = 2e-6  # in float32; measured: 6.1e-7
# Products of reflections forget nothing, so that their errors add up.
BOUNDS_OF_OPERANDS = {
  'tf32': 3e-2,  # measured: 1.5e-2
  'bfloat16': 3e-2,  # 1.7e-2
}

# (inputs, starts_BxL, cotangents of the state and y).
Drawn = tuple[delta_oracle.Inputs, np.ndarray, tuple[np.ndarray, np.ndarray]]


def cases() -> Iterator[base.Case]:
  """Yields each implementation that this device can run, at several shapes."""
  for op in RUN:
    for impl in implementations():
      lengths = (1,) if impl == 'step' else (17, 70)
      for L, decay in zip(lengths, ('key', 'head'), strict=False):
        yield base.Case(impl, L, 8, 5, decay, op=op)
      if impl in precision.MULTIPLYING:
        for operands in BOUNDS_OF_OPERANDS:
          yield base.Case(impl, 70, 16, 8, operands=operands, op=op)


def implementations() -> list[str]:
  """Returns the implementations that this device can run."""
  from rnn_jax.ops.gla import pallas as gla_pallas

  lacking = {
    'auto': True,
    'native': bool(delta_native.lacking()),
    'pallas': not gla_pallas.runs_here(),
  }
  return [impl for impl in delta.IMPLS if not lacking.get(impl)]


def check(case: base.Case) -> base.Result:
  """Runs one case."""
  drawn = draw(case.op, case.decay, (case.L, 2, case.K, case.P))
  run = both_ways(case.op, case.impl, None, case.operands)
  got = jax.device_get(run(*jax.device_put(drawn)))
  of_tensors = errors(got, *drawn)
  worst = max(of_tensors, key=lambda name: of_tensors[name])
  bound = BOUNDS_OF_OPERANDS.get(case.operands, CLOSE)
  return base.Result(case, of_tensors[worst], bound, worst)


def draw(
  op: str, decay: str, widths: tuple[int, int, int, int], seed: int = 0
) -> Drawn:
  """Returns random inputs, a row for each kind of gate, of (L, H, K, P)."""
  rng, (L, H, K, P) = np.random.default_rng(seed), widths

  def normal(*shape):
    return rng.normal(size=(ROWS, *shape)).astype(np.float32)

  k = normal(L, H, K)
  k /= np.linalg.norm(k, axis=-1, keepdims=True)
  loga = rng.choice(GATES, (ROWS, L, H, K if decay == 'key' else 1))
  loga[:2] = 0  # nothing is forgotten
  loga[2:5] = -rng.exponential(0.1, loga[2:5].shape)
  loga[5] = -rng.exponential(5, loga[5].shape)
  rows = np.arange(ROWS)[:, None]
  several = (rng.random((ROWS, L)) < 0.1) & (rows % 2 == 0)
  shared = normal(H, K, P), normal(L, H, K)
  loga = loga.astype(np.float32)
  inputs: delta_oracle.Inputs
  if op == 'delta':
    beta = rng.choice(BETAS, (ROWS, L, H)).astype(np.float32)
    beta[1] = 2  # a product of reflections
    inputs = delta_oracle.Delta(*shared, k, normal(L, H, P), loga, beta)
  else:
    write = k * rng.choice(BETAS, k.shape).astype(np.float32) / 2
    new = normal(L, H, K), normal(L, H, P)
    inputs = delta_oracle.General(*shared, *new, loga, -k, write)
  return inputs, several.astype(np.int32), (normal(H, K, P), normal(L, H, P))


@functools.cache
def both_ways(
  op: str, impl: str, chunk_length: int | None, operands: str = 'float32'
) -> Callable[..., Any]:
  """Returns a compiled function of `Drawn`: (state, y, *gradients)."""

  @jax.jit
  def run(inputs, starts, cotangents):
    options = {
      'impl': impl,
      'chunk_length': chunk_length,
      'operands': operands,
    }
    out, back = jax.vjp(
      lambda *x: RUN[op](*x, starts_BxL=starts, **options), *inputs
    )
    return *out, *back(cotangents)

  return run


def errors(
  got: Any,
  inputs: delta_oracle.Inputs,
  starts: np.ndarray,
  cotangents: tuple[np.ndarray, np.ndarray],
) -> dict[str, float]:
  """Returns the error of each tensor of `both_ways`, by name."""
  want = (
    *delta_oracle.forward(inputs, starts),
    *delta_oracle.backward(inputs, starts, *cotangents),
  )
  names = ('state', 'y', *(f'd_{name}' for name in inputs._fields))
  return {
    name: float(abs(np.float64(a) - b).max() / abs(b).max(initial=1e-30))
    for name, a, b in zip(names, got, want, strict=True)
  }
