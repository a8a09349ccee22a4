"""Runs every kernel of the C++ library on odd shapes, under a sanitizer.

`make sanitize` compiles the library with AddressSanitizer and UBSan and runs
this. Every operand and result of a call has a buffer of its own, followed by
memory that no one may touch: the handlers are called one at a time, outside of
jit. One bad access ends the process with a report.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.native import library
from rnn_jax.ops import fixed_order
from rnn_jax.ops import gated
from rnn_jax.ops import gated_layers
from rnn_jax.ops import products
from rnn_jax.ops import slstm
from rnn_jax.ops.delta import native as delta_native
from rnn_jax.ops.gla import native as gla_native
from rnn_jax.ops.gla import projected as gla_projected
from rnn_jax.ops.linear_scan import native as linear_scan_native

WIDTHS = 1, 3, 4, 7, 8, 15, 16, 17, 33


def _arrays(*shapes, dtype=np.float32):
  rng = np.random.default_rng(0)
  return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def _both_ways(function, *inputs):
  outputs, pull = jax.vjp(function, *inputs)
  jax.block_until_ready(pull(outputs))


def linear_scan():
  for B, L, S in itertools.product((1, 2), (1, 2, 5), (*WIDTHS, 255, 257)):
    inputs = _arrays((B, S), (B, L, S), (B, L, S))
    _both_ways(linear_scan_native.recurrence, *inputs)
    yield B, L, S


def half_states():
  """States in bfloat16, and in float32 where a step leaves them in place."""
  shapes = itertools.product((1, 2), (1, 3, 17), (1, 5, 16, 19, 64, 130))
  formats = jnp.float32, jnp.bfloat16
  for (L, K, P), dtype in itertools.product(shapes, formats):
    B, H = 1, 2
    (state,) = _arrays((B, H, K, P), dtype=dtype)
    q, k, v = _arrays((B, L, H, K), (B, L, H, K), (B, L, H, P))
    read, write, beta = _arrays((B, L, H, K), (B, L, H, K), (B, L, H))
    a = jnp.full((B, L, H, 1), 0.5)
    x = jnp.concatenate([q, k, a, v], -1)
    layout = gla_projected.Layout(K, P, 1)
    results = (
      gla_native.recurrence(state, q, k, v, jnp.log(a)),
      delta_native.run(state, q, k, v, a, (beta,)),
      delta_native.run(state, q, k, v, a, (read, write)),
      gla_projected.recurrence(layout, state, x, gla_projected.Weights()),
    )
    jax.block_until_ready(results)
    yield L, K, P, dtype


def gla():
  shapes = itertools.product((1, 33), (1, 3, 8, 17), (1, 5, 16, 19))
  kinds = itertools.product((jnp.float32, jnp.bfloat16), (False, True))
  for (L, K, P), (dtype, by_head) in itertools.product(shapes, kinds):
    B, H = 1, 2
    (state,) = _arrays((B, H, K, P))
    q, k = _arrays((B, L, H, K), (B, L, H, K), dtype=dtype)
    (v,) = _arrays((B, L, H, P), dtype=dtype)
    loga = -jnp.ones((B, L, H, 1 if by_head else K))
    read = 'before' if K % 2 else 'after'
    _both_ways(
      lambda *x, read=read: gla_native.recurrence(*x, read=read),
      *(state, q, k, v, loga),
    )
    yield B, L, H, K, P


def delta():
  shapes = itertools.product((1, 33), (1, 3, 8, 17), (1, 5, 19, 70))
  for (L, K, P), by_head in itertools.product(shapes, (False, True)):
    B, H = 1, 2
    state, q, k, v = _arrays(
      (B, H, K, P), (B, L, H, K), (B, L, H, K), (B, L, H, P)
    )
    a = jnp.full((B, L, H, 1 if by_head else K), 0.5)
    for others in ((B, L, H),), ((B, L, H, K), (B, L, H, K)):
      _both_ways(
        lambda state, q, k, v, a, *others: delta_native.run(
          state, q, k, v, a, others
        ),
        *(state, q, k, v, a, *_arrays(*others)),
      )
    yield B, L, H, K, P


def projected():
  widths = itertools.product((1, 5, 17), (1, 5, 19), (0, 3))
  kinds = itertools.product((1, 3, 9), (0, 1, 4), (False, True))
  for (K, P, R), (L, W, by_head) in itertools.product(widths, kinds):
    B, H, G = 2, 2, 1 if by_head else K
    activation = gla_projected.ACTIVATIONS[(K + P + L) % 4]
    layout = gla_projected.Layout(K, P, G, *[activation] * 3)
    E = H * (2 * K + P)
    state, bias = _arrays((B, H, K, P), (H, G))
    dtype = jnp.bfloat16 if L == 3 else jnp.float32
    (x,) = _arrays((B, L, H, 2 * K + G + P + R), dtype=dtype)
    inputs, taps = _arrays((B, W - 1, E), (W, E)) if W else (None, None)
    starts = jnp.zeros((B, L), jnp.int32).at[:, L // 2].set(1)

    def run(state, x, inputs, taps, bias, layout=layout, starts=starts):
      return gla_projected.recurrence(
        layout,
        state,
        x,
        gla_projected.Weights(taps, gate_bias=bias),
        inputs=inputs,
        starts_BxL=starts,
        segment=2,
      )

    _both_ways(run, state, x, inputs, taps, bias)
    yield B, L, H, K, P


def gated_cells():
  shapes = itertools.product((1, 3, 17), (1, 4), (1, 3, 8, 17))
  for (B, L, S), name in itertools.product(shapes, gated.KINDS):
    kind = gated.KINDS[name]
    h, u, kernel = _arrays((B, S), (B, L, kind.gates * S), (S, kind.gates * S))
    c = h if kind.cell else None
    bias = h[0] if name == 'gru' else None
    starts = jnp.zeros((B, L), jnp.int32).at[:, L // 2].set(1)

    def run(h, u, kernel, name=name, c=c, bias=bias, starts=starts):
      results = gated.recurrence(name, h, c, u, kernel, bias, starts_BxL=starts)
      return results[0], results[2]

    _both_ways(run, h, u, kernel)
    yield name, B, L, S


def layered_cells():
  shapes = itertools.product((1, 3, 17), (1, 4), (1, 3, 8, 17, 65))
  cells = ('rhn', 1), ('rhn', 3), ('gru_before', 2)
  for (B, L, S), (kind, count) in itertools.product(shapes, cells):
    is_rhn = kind == 'rhn'
    widths = (2 * S,) * count if is_rhn else (2 * S, S)
    h, u = _arrays((B, S), (B, L, gated_layers.KINDS[kind] * S))
    kernels = _arrays(*((S, width) for width in widths))
    biases = _arrays(*[(2 * S,)] * (count - 1)) if is_rhn else []
    starts = jnp.zeros((B, L), jnp.int32).at[:, L // 2].set(1)

    def run(*inputs, kind=kind, starts=starts):
      return gated_layers.recurrence(kind, *inputs, starts_BxL=starts)

    _both_ways(run, h, u, tuple(kernels), tuple(biases))
    yield kind, B, L, S


def slstm_cells():
  shapes = itertools.product((1, 3, 17), (1, 4, 17), (1, 3), (1, 3, 8, 17, 65))
  for B, L, H, K in shapes:
    S = H * K
    u, kernel, *state = _arrays((B, L, 4 * S), (H, K, 4 * K), *[(B, S)] * 4)
    starts = jnp.zeros((B, L), jnp.int32).at[:, L // 2].set(1)

    def run(u, kernel, *state, starts=starts):
      return slstm.recurrence(slstm.State(*state), u, kernel, starts_BxL=starts)

    _both_ways(run, u, kernel, *state)
    yield B, L, H, K


def packed_products():
  shapes = itertools.product((1, 2, 3, 7), (1, 31, 33, 600), WIDTHS)
  for (B, K, F), format in itertools.product(shapes, products.FORMATS):
    x, w = _arrays((B, K), (K, F))
    products.multiply(x, products.pack(w, format)).block_until_ready()
    yield format, B, K, F


def rows_in_fixed_order():
  for B, N in itertools.product((1, 3), (*WIDTHS, 4097)):
    x, w = _arrays((B, N), (3, N))

    def run(x, w):
      sums = [jnp.sum(x, axis) for axis in (0, 1, (0, 1))]
      both = x @ w.T, x.T @ (x[:, :1] @ w[:1])
      functions = jnp.exp(x), jnp.tanh(x), jnp.log1p(jnp.exp(x)), jnp.sin(x)
      return sums, both, functions

    results = (
      fixed_order.evaluate(run, x, w),
      fixed_order.logsumexp(x),
      fixed_order.argmax(x),
    )
    jax.block_until_ready(results)
    yield B, N


def row_programs():
  for B, H, K in itertools.product((1, 3), (1, 2, 3), WIDTHS):
    state, x, w = _arrays((B, 3, H * K), (B, H, K), (H, K))

    def run(state, x, w=w):
      row = jnp.concatenate([state, x.reshape(len(x), 1, -1)], 1)
      mixed = jnp.sum(row * jnp.arange(4.0)[None, :, None], 1)
      y = jax.nn.silu(mixed.reshape(x.shape)) * w[None]
      y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
      largest = jnp.max(x.transpose(0, 2, 1), 1)
      return row[:, 1:], y, jnp.where(x > 0, x[:, ::-1], largest[..., None])

    made = fixed_order.evaluate(run, state, x, rows=B)
    jax.block_until_ready(made)
    yield B, H, K


def main():
  if why := library.lacking():
    raise SystemExit(f'nothing is checked: {why}')
  print(library.describe(), flush=True)
  for kernel in (
    linear_scan,
    gla,
    half_states,
    delta,
    projected,
    gated_cells,
    layered_cells,
    slstm_cells,
    packed_products,
    rows_in_fixed_order,
    row_programs,
  ):
    count = sum(1 for _ in kernel())
    print(f'{kernel.__name__}: {count} shapes', flush=True)


if __name__ == '__main__':
  main()
