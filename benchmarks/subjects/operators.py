"""The recurrence alone on a GPU, ours and flash-linear-attention's.

(B, L, H, K, P) with bfloat16 inputs and float32 log-decays, forward, or
forward and backward of the sum of the outputs times fixed numbers.
"""

import jax
import jax.numpy as jnp

from benchmarks import measure
from benchmarks.subjects import models
from rnn_jax.ops import gla


def recurrence(repeats, shape, impl, backward, dtype='bfloat16'):
  """`gla.recurrence` of that impl, from the zero state."""
  state, inputs, cotangent = jax.jit(_draw, static_argnums=(0, 1))(
    tuple(shape), dtype
  )

  def forward(inputs):
    return gla.recurrence(state, *inputs, impl=impl)[1]

  def both(inputs):
    y, back = jax.vjp(forward, inputs)
    return y, back(cotangent)

  run = jax.jit(both if backward else forward)
  program, values = measure.compile_program(run, inputs)
  values |= measure.repeat(lambda: models.wait(program(inputs)), repeats, 3)
  return values | measure.device_peak(jax.devices()[0])


def _draw(shape, dtype):
  B, L, H, K, P = shape
  keys = jax.random.split(jax.random.key(0), 5)
  wide, tall = (B, L, H, K), (B, L, H, P)
  q, k = (jax.random.normal(key, wide, dtype) for key in keys[:2])
  v, cotangent = (jax.random.normal(key, tall, dtype) for key in keys[2:4])
  loga = jax.nn.log_sigmoid(jax.random.normal(keys[4], wide) + 3)
  state = jnp.zeros((B, H, K, P))
  return state, (q * K**-0.5, k, v, loga), cotangent


def chunk_gla(repeats, shape, backward, dtype='bfloat16'):
  """`fla.ops.gla.chunk_gla` of the same sizes, through PyTorch on CUDA."""
  import torch
  from fla.ops import gla as peer

  B, L, H, K, P = shape
  torch.manual_seed(0)
  options = {'device': 'cuda', 'dtype': getattr(torch, dtype)}
  wide, tall = (B, L, H, K), (B, L, H, P)
  q, k = (torch.randn(wide, **options) for _ in range(2))
  v, cotangent = (torch.randn(tall, **options) for _ in range(2))
  loga = torch.randn(wide, device='cuda').add(3).sigmoid().log()
  inputs = [x.requires_grad_(backward) for x in (q, k, v, loga)]

  def run():
    y, _ = peer.chunk_gla(*inputs, scale=K**-0.5)
    if backward:
      torch.autograd.grad(y, inputs, cotangent)
    torch.cuda.synchronize()

  torch.cuda.reset_peak_memory_stats()
  values = measure.repeat(run, repeats, warmups=10)
  return values | {'device_peak_bytes': torch.cuda.max_memory_allocated()}
