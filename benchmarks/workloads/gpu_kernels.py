"""The recurrences on a GPU: ours, and the kernels of others.

(B, L, H, K, P), q, k and v in bfloat16, float32 log-decays, from the zero
state. A row has seconds of a forward and backward pass, with the gradients of
all inputs, and under `forward` those of a forward pass. CALLS calls are queued
at once, so that a device waits for no dispatch that can hide.

`rule` is 'gla', gated linear attention, 'ssd', the same with one decay a head
and with queries and keys that all heads share, or 'delta', the delta rule with
one decay a head, float32 rates and keys of norm 1. `who` is 'chunked' or
another impl of our recurrence, 'jla' for jax-linear-attention, which is
compared in 'gla', or a function of flash-linear-attention.
"""

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.harness import measure
from benchmarks.harness import turns
from benchmarks.workloads import operators

CALLS = 10
WARMUPS = 3
TUNING = {'warmup': 5, 'rep': 25}  # ms of each tile that fla tries
BFLOAT16 = ml_dtypes.bfloat16
BOUND_DELTA = 4e-2  # where nothing is forgotten, errors add up
CHECKED = ('sigmoid, starts: none', 'nearly one, starts: none')


def passes(
  repeats: int,
  shape: operators.Shape,
  who: str,
  device: str = 'cuda',
  rule: str = 'gla',
) -> measure.Values:
  """Seconds of both passes, and of the forward pass.

  `device` is that of flash-linear-attention, which a rehearsal has on the CPU.
  """
  inputs, cotangent = _draw(shape, rule)
  if _is_fla(who):
    return _fla_passes(repeats, who, inputs, cotangent, device)
  return _jax_passes(repeats, who, rule, inputs, cotangent)


def check(
  who: str, length: int = 130, device: str = 'cuda', width: int = 64
) -> measure.Values:
  """The largest errors of kernels as launch.selfcheck measures ours.

  Of its rows CHECKED, which every library can take, with bfloat16 inputs and
  keys and values of `width`.
  """
  from rnn_jax.selfcheck import gla as selfcheck

  drawn = selfcheck.draw(length, 'key', 'bfloat16', K=width, P=width)
  rows = [selfcheck.row_names().index(name) for name in CHECKED]
  inputs, starts, cotangents = drawn
  inputs = type(inputs)(*(x[rows] for x in inputs))
  # Log-decays are float32 numbers everywhere.
  inputs = inputs._replace(loga=np.float32(inputs.loga))
  cotangents = [x[rows] for x in cotangents]
  run = _fla_vjp if _is_fla(who) else _jax_vjp
  got = run(who, inputs, cotangents, device)
  drawn = inputs, starts[rows], cotangents
  errors = {
    name: float(by_row.max())
    for name, by_row in selfcheck.compare(got, drawn, 'after').items()
  }
  bound = selfcheck.BOUND_BFLOAT16_OPERANDS
  return {
    'checks': 1,
    'passed': int(max(errors.values()) <= bound),
    'errors': errors,
    'bound': bound,
  }


def check_delta(
  who: str, length: int = 130, device: str = 'cuda'
) -> measure.Values:
  """The largest errors of the delta rule, each relative to its tensor."""
  from rnn_jax.ops.delta import oracle
  from rnn_jax.selfcheck import delta as selfcheck

  inputs, d_y = _draw((2, length, 2, 64, 64), 'delta')
  rng = np.random.default_rng(1)
  state, d_state = rng.standard_normal((2, 2, 2, 64, 64), np.float32)
  drawn = oracle.Delta(state, *inputs)
  starts = np.zeros((2, length))
  if _is_fla(who):
    got = _fla_vjp(who, drawn, (d_state, d_y), device)
  else:
    got = _jax_vjp(who, drawn, (d_state, d_y), device, 'delta')
  cotangents = d_state, np.float32(d_y)
  errors = selfcheck.errors([*got[0], *got[1]], drawn, starts, cotangents)
  return {
    'checks': 1,
    'passed': int(max(errors.values()) <= BOUND_DELTA),
    'errors': errors,
    'bound': BOUND_DELTA,
  }


def check_convolution(heads: int, length: int = 300) -> measure.Values:
  """The largest errors of the convolution's kernels, of each tensor's."""
  from rnn_jax.ops import causal_convolution
  from rnn_jax.selfcheck import convolution as selfcheck

  norm = causal_convolution.Norm(heads, 0.25) if heads else None
  options = causal_convolution.Options(True, norm, 'pallas')
  errors = selfcheck.errors(
    selfcheck.draw(length, 4, 512, 'bfloat16'), options, 'bfloat16'
  )
  bound = selfcheck.BOUNDS['bfloat16']
  return {
    'checks': 1,
    'passed': int(max(errors.values()) <= bound),
    'errors': errors,
    'bound': bound,
  }


def _draw(shape, rule='gla'):
  """(q, k, v, log a), the delta rule's rate, and a cotangent of y: NumPy's."""
  B, L, H, K, P = shape
  rng = np.random.default_rng(0)

  def normal(width):
    return rng.standard_normal((B, L, H, width), np.float32)

  q, k, v, cotangent = (
    x.astype(BFLOAT16)
    for x in (normal(K) * np.float32(K**-0.5), normal(K), normal(P), normal(P))
  )
  loga = -np.logaddexp(np.float32(0), -normal(K) - 3)
  if rule == 'gla':
    return (q, k, v, loga), cotangent
  if rule == 'ssd':
    return (q[:, :, :1], k[:, :, :1], v, loga[..., :1]), cotangent
  k = np.float32(k)
  k = (k / np.linalg.norm(k, axis=-1, keepdims=True)).astype(BFLOAT16)
  rate = 1 / (1 + np.exp(-normal(1)[..., 0]))
  return (q, k, v, loga[..., :1], rate), cotangent


def _queued(call: Callable[[], Any], wait: Callable[[Any], Any], repeats: int):
  """Seconds of a call, of several that are queued."""

  def run():
    for _ in range(CALLS):
      result = call()
    wait(result)

  turns.alone()
  for _ in range(WARMUPS):
    run()
  seconds = [measure.seconds(run) / CALLS for _ in range(repeats)]
  return measure.summarize(seconds)


def _jax_forward(who, rule='gla'):
  """A function of (state, q, k, v, log a, ...) to (state, y)."""
  if who == 'jla':
    from jla import ops

    def forward(state, q, k, v, loga):
      y, state = ops.linear_attention(
        'gla',
        q,
        k,
        v,
        g=loga,
        scale=1.0,
        initial_state=state,
        output_final_state=True,
      )
      return state, y

    return forward

  from rnn_jax.ops import delta
  from rnn_jax.ops import gla

  run = (delta if rule == 'delta' else gla).recurrence
  return lambda *inputs: run(*inputs, impl=who, operands='bfloat16')


def _jax_passes(repeats, who, rule, inputs, cotangent):
  import jax
  import jax.numpy as jnp

  from benchmarks.workloads import programs

  forward_of = _jax_forward(who, rule)
  K, (B, _, H, P) = inputs[0].shape[-1], cotangent.shape

  def forward(inputs):
    return forward_of(jnp.zeros((B, H, K, P)), *inputs)[1]

  def both(inputs, cotangent):
    y, back = jax.vjp(forward, inputs)
    return y, back(cotangent)

  inputs, cotangent = jax.device_put((inputs, cotangent))
  program, values = programs.compile_ahead(jax.jit(both), inputs, cotangent)
  alone, _ = programs.compile_ahead(jax.jit(forward), inputs)
  values |= _queued(
    lambda: program(inputs, cotangent), jax.block_until_ready, repeats
  )
  values |= programs.device_peak()
  timed = _queued(lambda: alone(inputs), jax.block_until_ready, repeats)
  return values | {'forward': timed}


def _jax_vjp(who, inputs, cotangents, device, rule='gla'):
  del device  # the default one
  import jax

  @jax.jit
  def both(inputs, cotangents):
    out, back = jax.vjp(_jax_forward(who, rule), *inputs)
    return out, back(cotangents)

  return jax.device_get(both(inputs, tuple(cotangents)))


def _is_fla(who):
  return who.endswith(('_gla', '_rule'))


def _fla_forward(who, device):
  """A function of (state, q, k, v, log a, ...) to (state, y)."""
  from fla.ops import gated_delta_rule
  from fla.ops import gla

  if device == 'cpu':
    from triton.runtime import autotuner

    # Triton's interpreter can't time the tiles that it could choose.
    autotuner.Autotuner._bench = lambda self, *inputs, **options: [0.0]
  else:
    from triton import testing

    # About 300 tiles for each pair of widths, at 125 ms each by default.
    testing.do_bench = functools.partial(testing.do_bench, **TUNING)

  function = getattr(gla if who.endswith('_gla') else gated_delta_rule, who)

  def forward(state, q, k, v, loga, *rate):
    options = {'scale': 1.0, 'output_final_state': state is not None}
    if rate:  # one decay a head
      loga = loga[..., 0]
    y, last = function(q, k, v, loga, *rate, initial_state=state, **options)
    return last, y

  return forward


def _fla_passes(repeats, who, inputs, cotangent, device):
  import torch

  forward, wait = _fla_forward(who, device), _wait(device)
  inputs = [_tensor(x, device).requires_grad_() for x in inputs]
  cotangent = _tensor(cotangent, device)

  def both():
    _, y = forward(None, *inputs)
    return torch.autograd.grad(y, inputs, cotangent)

  def alone():
    with torch.no_grad():
      return forward(None, *inputs)[1]

  turns.alone()
  both()  # tunes its kernels, which takes memory
  if device == 'cuda':
    torch.cuda.reset_peak_memory_stats()
  values = _queued(both, wait, repeats)
  if device == 'cuda':
    values['device_peak_bytes'] = torch.cuda.max_memory_allocated()
  return values | {'forward': _queued(alone, wait, repeats)}


def _fla_vjp(who, inputs, cotangents, device):
  import torch

  turns.alone()  # it tunes its kernels by their times
  inputs = [_tensor(x, device).requires_grad_() for x in inputs]
  out = _fla_forward(who, device)(*inputs)
  cotangents = [
    _tensor(x, device).to(y.dtype) for x, y in zip(cotangents, out, strict=True)
  ]
  gradients = torch.autograd.grad(out, inputs, cotangents)
  return tuple(
    tuple(x.detach().float().cpu().numpy() for x in some)
    for some in (out, gradients)
  )


def _wait(device):
  import torch

  return lambda _: torch.cuda.synchronize() if device == 'cuda' else None


def _tensor(x, device):
  """A NumPy array as a tensor; PyTorch knows no bfloat16 of NumPy's."""
  import torch

  tensor = torch.from_numpy(np.float32(x))
  dtype = torch.bfloat16 if x.dtype == BFLOAT16 else torch.float32
  return tensor.to(device, dtype)
