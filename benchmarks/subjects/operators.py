"""The recurrence and attention alone, and flash-linear-attention's.

(B, L, H, K, P) with float32 log-decays, forward, or forward and backward of
the sum of the outputs times fixed numbers.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import measure
from benchmarks.subjects import models
from rnn_jax import host
from rnn_jax.ops import attention as attention_lib
from rnn_jax.ops import attention_ring
from rnn_jax.ops import gla
from rnn_jax.ops import row_attention as row_attention_lib


def recurrence(
  repeats,
  shape,
  impl,
  backward,
  dtype='bfloat16',
  by_head=False,
  chunk_length=gla.CHUNK,
):
  """`gla.recurrence` of that impl, from the zero state."""
  draw = jax.jit(draw_recurrence, static_argnums=(0, 1, 2))
  state, inputs, cotangent = draw(tuple(shape), dtype, by_head)

  def forward(inputs):
    options = {'impl': impl, 'chunk_length': chunk_length}
    return gla.recurrence(state, *inputs, **options)[1]

  def both(inputs):
    y, back = jax.vjp(forward, inputs)
    return y, back(cotangent)

  run = jax.jit(both if backward else forward)
  program, values = measure.compile_program(run, inputs)
  values |= measure.repeat(lambda: models.wait(program(inputs)), repeats, 3)
  return values | measure.device_peak(jax.devices()[0])


def draw_recurrence(shape, dtype, by_head):
  B, L, H, K, P = shape
  keys = jax.random.split(jax.random.key(0), 5)
  wide, tall = (B, L, H, K), (B, L, H, P)
  q, k = (jax.random.normal(key, wide, dtype) for key in keys[:2])
  v, cotangent = (jax.random.normal(key, tall, dtype) for key in keys[2:4])
  decays = (B, L, H, 1) if by_head else wide
  loga = jax.nn.log_sigmoid(jax.random.normal(keys[4], decays) + 3)
  state = jnp.zeros((B, H, K, P))
  return state, (q * K**-0.5, k, v, loga), cotangent


def attention(repeats, shape, window=0, options=None):
  """`attention.attend` of rows that begin here, forward and backward.

  `options` are those of attention.Options; a window of 0 is all of a row.
  """
  both = _attend_both_ways(window, attention_lib.Options(**(options or {})))
  return _measure_attention(repeats, shape, both)


def row_attention(repeats, shape, options):
  """`row_attention.attend`, forward and backward.

  `options` are those of row_attention.Options.
  """
  options = row_attention_lib.Options(**options)

  def both(inputs, cotangent):
    y, back = jax.vjp(
      lambda *qkv: row_attention_lib.attend(*qkv, options), *inputs
    )
    return y, *back(cotangent)

  return _measure_attention(repeats, shape, both)


def _measure_attention(repeats, shape, both):
  inputs, cotangent = jax.jit(_draw_attention, static_argnums=0)(tuple(shape))
  program, values = measure.compile_program(jax.jit(both), inputs, cotangent)
  memory = host.Memory()

  def run():
    models.wait(program(inputs, cotangent))

  values |= measure.repeat(run, repeats) | memory.values()
  return values | measure.device_peak(jax.devices()[0])


def attention_difference(repeats, shape):
  """How far 'blocked' is from 'exact': y and the gradients of q, k and v.

  Each is the largest difference as a share of the largest number.
  """
  del repeats
  inputs, cotangent = jax.jit(_draw_attention, static_argnums=0)(tuple(shape))
  found = []
  for impl in ('exact', 'blocked'):
    both = _attend_both_ways(0, attention_lib.Options(impl))
    y, slopes = jax.jit(both)(inputs, cotangent)
    found.append(dict(zip('yqkv', map(np.asarray, (y, *slopes)), strict=True)))
  exact, got = found
  return {
    'differences': {
      name: float(abs(x - exact[name]).max() / abs(exact[name]).max())
      for name, x in got.items()
    }
  }


def _attend_both_ways(window, options):
  def forward(inputs):
    q, _, v = inputs
    B, L, H, K = q.shape
    cache = attention_ring.init_cache(B, window or L, H, K, v.shape[-1])
    return attention_lib.attend(cache, *inputs, options)[1]

  def both(inputs, cotangent):
    y, back = jax.vjp(forward, inputs)
    return y, *back(cotangent)

  return both


def _draw_attention(shape):
  B, L, H, K, P = shape
  keys = jax.random.split(jax.random.key(0), 4)
  widths = zip(keys, (K, K, P, P), strict=True)
  q, k, v, cotangent = (
    jax.random.normal(key, (B, L, H, width)) for key, width in widths
  )
  return (q, k, v), cotangent


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
