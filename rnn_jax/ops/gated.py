"""Gated recurrences whose gates read h, in C++ on a CPU: see native/gated.cc.

With a = u_t + U h_{t-1}, cut into one part of S numbers for each gate:

    lstm      i, f, o = sigmoid(a_i, a_f, a_o)    g = tanh(a_g)
              c_t = f * c_{t-1} + i * g           h_t = o * tanh(c_t)
    min_lstm  the same with i = 1 - f
    gru       r, z = sigmoid(a_r, a_z)            q = U_n h_{t-1} + b
              n = tanh(u_n + r * q)
              h_t = (1 - z) * n + z * h_{t-1}

The parts are in the order i, f, g, o; f, g, o; and r, z, n. Shapes: u is
BxLx(G S) for G gates, U is Sx(G S), h and c are BxLxS, b is S. All is float32.
A row is read step by step on one thread, rows by several threads, and the
numbers do not depend on how many. The backward pass goes from the last step to
the first, multiplying with the transposed U; it reads the gates, which lie
where u was, and c or q. The gradient of U is one product over all steps.
Sources: those of cells/lstm.py, cells/min_lstm.py and cells/gru.py.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import precision

ROWS = 2048  # steps at a time of the gradient of U


class Kind(NamedTuple):
  """How many gates a recurrence has, and whether it has c."""

  gates: int
  cell: bool


KINDS = {
  'lstm': Kind(4, True),
  'min_lstm': Kind(3, True),
  'gru': Kind(3, False),
}


def lacking() -> str:
  """Says why the recurrences can't run here; '' if they can."""
  if (device := jax.default_backend()) != 'cpu':
    return f"impl='native' needs a CPU, not {device}"
  return library.lacking()


def recurrence(
  kind: str,
  h_BxS: jax.Array,
  c_BxS: jax.Array | None,
  u_BxLx_: jax.Array,
  kernel_Sx_: jax.Array,
  bias_S: jax.Array | None = None,
  *,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
  """Runs a recurrence over time, any L >= 1.

  Args:
    kind: one of KINDS.
    h_BxS: h before the first step.
    c_BxS: c likewise; None for 'gru'.
    u_BxLx_: W x + b of all steps.
    kernel_Sx_: U.
    bias_S: b of 'gru'; None for the others.
    starts_BxL: nonzero where a document begins: h and c are zeroed before it.

  Returns:
    (h_BxS, c_BxS or None, h_BxLxS), of which the states are float32 and
    h_BxLxS has u's dtype.

  Raises:
    ValueError: an unknown kind, shapes that disagree, or c or b where the kind
      has none.
    NotImplementedError: no library here, or a gradient of a gradient.
  """
  _check(kind, h_BxS, c_BxS, u_BxLx_, kernel_Sx_, bias_S, starts_BxL)
  if why := lacking():
    raise NotImplementedError(why)
  none = jnp.zeros((0,))
  if starts_BxL is None:
    starts = jnp.zeros((u_BxLx_.shape[0], 0), jnp.uint8)
  else:
    starts = (starts_BxL != 0).astype(jnp.uint8)
  floats = (
    u_BxLx_,
    kernel_Sx_,
    none if bias_S is None else bias_S,
    h_BxS,
    jnp.zeros((h_BxS.shape[0], 0)) if c_BxS is None else c_BxS,
  )
  h, c = _run(kind, *(x.astype(jnp.float32) for x in floats), starts)
  c = c if KINDS[kind].cell else None
  return h[:, -1], c, h.astype(u_BxLx_.dtype)


def _check(kind, h, c, u, kernel, bias, starts):
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: choose one of {tuple(KINDS)}')
  for name, x, wanted in (
    ('c_BxS', c, KINDS[kind].cell),
    ('bias_S', bias, kind == 'gru'),
  ):
    if (x is not None) != wanted:
      raise ValueError(
        f'{name} with kind={kind!r}: give {"it" if wanted else "None"}'
      )
  width = h.shape[-1] * KINDS[kind].gates
  for name, x, want in (
    ('h_BxS', h, (u.shape[0], kernel.shape[0])),
    ('c_BxS', c, h.shape),
    ('u_BxLx_', u, (*u.shape[:2], width)),
    ('kernel_Sx_', kernel, (h.shape[-1], width)),
    ('bias_S', bias, h.shape[-1:]),
    ('starts_BxL', starts, u.shape[:2]),
  ):
    if x is not None and x.shape != want:
      raise ValueError(f'{name} has shape {x.shape}, not {want}')
  if not u.shape[1]:
    raise ValueError('u_BxLx_ has L=0: give one step or more')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(kind, u, kernel, bias, h0, c0, starts):
  h, c, *_ = _forward(kind, False)(u, kernel, bias, h0, c0, starts)
  return h, c


def _run_forward(kind, u, kernel, bias, h0, c0, starts):
  h, c, *kept = _forward(kind, True)(u, kernel, bias, h0, c0, starts)
  return (h, c), (kernel, h0, c0, starts, h, *kept)


def _run_backward(kind, residuals, d):
  kernel, h0, c0, starts, h, gates, extra = residuals
  d_h0, d_c0, d_u, d_product = _backward(kind)(
    kernel, h0, c0, starts, h, gates, extra, *d
  )
  d_product = d_u if KINDS[kind].cell else d_product
  before = jnp.concatenate([h0[:, None], h[:, :-1]], 1)
  if starts.shape[1]:
    before = jnp.where(starts[..., None] != 0, 0.0, before)
  d_kernel = _outer(before, d_product)
  S = kernel.shape[0]
  d_bias = d_product[..., -S:].sum((0, 1)) if kind == 'gru' else jnp.zeros((0,))
  return d_u, d_kernel, d_bias, d_h0, d_c0, None


_run.defvjp(_run_forward, _run_backward)


def _outer(x_BxLxI, y_BxLxJ):
  """The sum over rows and steps of x times y."""
  x, y = (a.reshape(-1, a.shape[-1]) for a in (x_BxLxI, y_BxLxJ))
  if x.shape[0] % ROWS:
    return precision.dot(x, y, (((0,), (0,)), ((), ())), 'float32')
  # As in ops.precision: a CPU turns x around first.
  x, y = (a.reshape(-1, ROWS, a.shape[-1]) for a in (x, y))
  parts = precision.dot(x, y, (((1,), (1,)), ((0,), (0,))), 'float32')
  return jnp.sum(jax.lax.optimization_barrier(parts), 0)


@functools.cache
def _forward(kind, keeps):
  """u, U, b, h0, c0, starts -> h, c, gates, and c or q of all steps: the last
  two are empty unless it keeps them, for the backward pass."""

  def call(u, kernel, bias, h0, c0, starts):
    B, L, width = u.shape
    S = kernel.shape[0]
    results = [
      _float32(B, L, S),
      _float32(*c0.shape),
      _float32(B, L, width if keeps else 0),
      _float32(B, L, S if keeps else 0),
    ]
    operands = u, kernel, bias, h0, c0, starts
    aliases = {0: 2} if keeps else {}
    return tuple(
      library.call(f'{kind}_forward', results, *operands, aliases=aliases)
    )

  return transforms.by_rows(shared=(1, 2))(call)


@functools.cache
def _backward(kind):
  """U, h0, c0, starts, h, gates, c or q, and the gradients of h and the last
  c -> the gradients of h0, c0, u, and of U h where that is not u's."""

  def call(kernel, h0, c0, starts, h, gates, extra, d_h, d_c):
    B, L, S = h.shape
    cell = KINDS[kind].cell
    width = kernel.shape[1]
    results = [
      _float32(B, S),
      _float32(*c0.shape),
      _float32(B, L, width),
      _float32(B, L, 0 if cell else width),
    ]
    operands = kernel, h0, c0, starts, h, gates, extra, d_h, d_c
    return tuple(
      library.call(f'{kind}_backward', results, *operands, aliases={5: 2})
    )

  return transforms.by_rows(shared=(0,))(call)


def _float32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)
