"""Gated linear attention and the delta rule by others, on a CPU.

flash-linear-attention has them in PyTorch without kernels, step by step and,
for the delta rule, in chunks; these are what runs there without a GPU.
jax-linear-attention has them in chunks, in plain JAX. Sizes, inputs and passes
are those of operators.py, and a row's `difference` is how far their outputs
are from our scan's, as a share of the largest.
"""

from typing import Any

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import operators


def fla(
  repeats: int, shape: operators.Shape, rule: str, form: str, backward: bool
) -> measure.Values:
  """A naive form of flash-linear-attention: 'recurrent' or 'chunk'."""
  import torch

  torch.set_num_threads(measure.cores())
  (_, *inputs), cotangent, want = _draw(shape, rule)
  inputs = [torch.from_numpy(x).requires_grad_(backward) for x in inputs]
  cotangent = torch.from_numpy(cotangent)
  apply = _naive(rule, form)

  def run():
    with torch.set_grad_enabled(backward):
      y = apply(*inputs)
      if backward:
        torch.autograd.grad(y, inputs, cotangent)
      return y

  values = {'difference': _difference(run().detach().numpy(), want)}
  return values | measure.repeat(run, repeats, 0)


def _naive(rule, form):
  """A function of (q, k, v, loga), and of the rate if there is one, to y."""
  import importlib

  module = importlib.import_module(f'fla.ops.{rule}.naive')
  function = getattr(module, f'naive_{form}_{rule}')

  def apply(q, k, v, loga, *rate):
    # They scale q by this.
    return function(q * q.shape[-1] ** 0.5, k, v, loga, *rate)[0]

  return apply


def jla(
  repeats: int, shape: operators.Shape, rule: str, backward: bool
) -> measure.Values:
  """The chunked form of jax-linear-attention."""
  from jla import ops

  (state, *inputs), cotangent, want = _draw(shape, rule)

  def forward(inputs):
    q, k, v, loga, *rate = inputs
    gates = {'g': loga} | ({'beta': rate[0]} if rate else {})
    options = {'scale': 1.0, 'initial_state': state, 'impl': 'chunked'}
    return ops.linear_attention(rule, q, k, v, **gates, **options)[0]

  got = jax.device_get(jax.jit(forward)(inputs))
  values = {'difference': _difference(got, want)}
  return values | operators.measured(
    repeats, forward, inputs, cotangent, backward
  )


def _draw(shape, rule):
  """The arguments of our recurrence, a cotangent of y, and our scan's y."""
  drawn, run = operators.draw(shape, rule)
  inputs, cotangent = jax.device_get(drawn)
  want = jax.device_get(jax.jit(lambda x: run(*x, impl='scan')[1])(inputs))
  return inputs, cotangent, want


def _difference(got: Any, want: np.ndarray) -> float:
  return float(np.abs(got - want).max() / np.abs(want).max())
