"""The recurrences and attention by themselves.

(B, L, H, K, P) with float32 log-decays, forward, or forward and backward of
the sum of the outputs times fixed numbers.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.harness import measure
from benchmarks.workloads import programs
from rnn_jax.ops import attention as attention_lib
from rnn_jax.ops import delta as delta_lib
from rnn_jax.ops import gla
from rnn_jax.ops.attention import ring as attention_ring
from rnn_jax.ops.attention import row as row_attention_lib

Shape = Sequence[int]


def recurrence(
  repeats: int,
  shape: Shape,
  impl: str,
  backward: bool,
  dtype: str = 'bfloat16',
  by_head: bool = False,
  chunk_length: int = gla.CHUNK,
) -> measure.Values:
  """`gla.recurrence` of that impl, from the zero state."""
  draw = jax.jit(_draw_recurrence, static_argnums=(0, 1, 2))
  state, inputs, cotangent = draw(tuple(shape), dtype, by_head)

  def forward(inputs):
    options = {'impl': impl, 'chunk_length': chunk_length}
    return gla.recurrence(state, *inputs, **options)[1]

  values = measured(repeats, forward, inputs, cotangent, backward)
  return values | programs.device_peak()


def _draw_recurrence(shape, dtype, by_head):
  """The zero state, (q, k, v, loga), and a cotangent of y."""
  B, L, H, K, P = shape
  keys = jax.random.split(jax.random.key(0), 5)
  wide, tall = (B, L, H, K), (B, L, H, P)
  q, k = (jax.random.normal(key, wide, dtype) for key in keys[:2])
  v, cotangent = (jax.random.normal(key, tall, dtype) for key in keys[2:4])
  decays = (B, L, H, 1) if by_head else wide
  loga = jax.nn.log_sigmoid(jax.random.normal(keys[4], decays) + 3)
  state = jnp.zeros((B, H, K, P))
  return state, (q * K**-0.5, k, v, loga), cotangent


def delta(
  repeats: int, shape: Shape, form: str, impl: str, backward: bool
) -> measure.Values:
  """`delta.recurrence` ('rule'), or its general form, from the zero state."""
  inputs, cotangent = _delta_inputs(shape, form)
  run = DELTA_FORMS[form]

  def forward(inputs):
    return run(*inputs, impl=impl)[1]

  return measured(repeats, forward, inputs, cotangent, backward)


def measured(
  repeats: int,
  forward: Callable[[Any], jax.Array],
  inputs: Any,
  cotangent: jax.Array,
  backward: bool,
) -> measure.Values:
  """Seconds of y = forward(inputs), or of that and its gradients."""

  def both(inputs, cotangent):
    y, back = jax.vjp(forward, inputs)
    return y, back(cotangent)

  arguments = (inputs, cotangent) if backward else (inputs,)
  jitted = jax.jit(both if backward else forward)
  program, values = programs.compile_ahead(jitted, *arguments)
  return values | measure.repeat(programs.run(program, *arguments), repeats, 3)


DELTA_FORMS = {
  'rule': delta_lib.recurrence,
  'general': delta_lib.general_recurrence,
}


def draw(shape: Shape, rule: str) -> tuple[Any, Callable[..., Any]]:
  """((arguments, a cotangent of y), the recurrence that takes them).

  `rule` is 'gla', gated linear attention, or 'kda', the delta rule.
  """
  if rule == 'kda':
    return _delta_inputs(shape, 'rule'), delta_lib.recurrence
  drawn = jax.jit(_draw_recurrence, static_argnums=(0, 1, 2))
  state, inputs, cotangent = drawn(tuple(shape), 'float32', False)
  return ((state, *inputs), cotangent), gla.recurrence


def _delta_inputs(shape, form):
  return jax.jit(_draw_delta, static_argnums=(0, 1))(tuple(shape), form)


def _draw_delta(shape, form):
  """The inputs of a form, with keys of norm 1, and a cotangent of y."""
  state, (q, k, v, loga), cotangent = _draw_recurrence(shape, 'float32', False)
  k /= jnp.linalg.norm(k, axis=-1, keepdims=True)
  rate = jax.nn.sigmoid(jax.random.normal(jax.random.key(1), k.shape))
  others = (rate[..., 0],) if form == 'rule' else (-k, rate * k)
  return (state, q, k, v, loga, *others), cotangent


def attention(
  repeats: int, shape: Shape, options: measure.Values, window: int = 0
) -> measure.Values:
  """`attention.attend` of rows that begin here, forward and backward.

  `options` are those of attention.Options; a window of 0 is all of a row.
  """
  attend = _attend(window, attention_lib.Options(**options))
  return _measure_attention(repeats, shape, attend)


def row_attention(
  repeats: int, shape: Shape, options: measure.Values
) -> measure.Values:
  """`row_attention.attend`, forward and backward.

  `options` are those of row_attention.Options.
  """
  options = row_attention_lib.Options(**options)
  return _measure_attention(
    repeats, shape, lambda *qkv: row_attention_lib.attend(*qkv, options)
  )


def _measure_attention(repeats, shape, attend):
  drawn = _draw_attention(shape)
  program, values = programs.compile_ahead(_both_ways(attend), *drawn)
  values |= measure.with_memory(programs.run(program, *drawn), repeats)
  return values | programs.device_peak()


def attention_difference(shape: Shape) -> measure.Values:
  """How far 'blocked' is from 'exact': y and the gradients of q, k and v.

  Each is the largest difference as a share of the largest number.
  """
  drawn = _draw_attention(shape)
  results = [
    jax.device_get(_both_ways(_attend(0, attention_lib.Options(impl)))(*drawn))
    for impl in ('exact', 'blocked')
  ]
  return {
    'differences': {
      name: float(abs(got - exact).max() / abs(exact).max())
      for name, exact, got in zip('yqkv', *results, strict=True)
    }
  }


def _attend(window, options):
  def attend(q, k, v):
    B, L, H, K = q.shape
    cache = attention_ring.init_cache(B, window or L, H, K, v.shape[-1])
    return attention_lib.attend(cache, q, k, v, options)[1]

  return attend


def _both_ways(attend):
  @jax.jit
  def both(inputs, cotangent):
    y, back = jax.vjp(attend, *inputs)
    return y, *back(cotangent)

  return both


def _draw_attention(shape):
  """(q, k, v), and a cotangent of y."""
  B, L, H, K, P = shape

  @jax.jit
  def draw():
    keys = jax.random.split(jax.random.key(0), 4)
    widths = zip(keys, (K, K, P, P), strict=True)
    return [jax.random.normal(key, (B, L, H, width)) for key, width in widths]

  *inputs, cotangent = draw()
  return tuple(inputs), cotangent
