"""Gated recurrences whose gates read h, in C++ on a CPU: see native/gated.cc.

With a = u_t + U h_{t-1}, split into S numbers for each gate:

    lstm      i, f, o = sigmoid(a_i, a_f, a_o)    g = tanh(a_g)
              c_t = f * c_{t-1} + i * g           h_t = o * tanh(c_t)
    min_lstm  the same with i = 1 - f
    gru       r, z = sigmoid(a_r, a_z)            q = U_n h_{t-1} + b
              n = tanh(u_n + r * q)
              h_t = (1 - z) * n + z * h_{t-1}

The order is i, f, g, o; f, g, o; and r, z, n. Shapes: u is BxLx(G S) for G
gates, U is Sx(G S), h and c are BxLxS, b is S. Everything is float32. One
thread steps through a row; rows run in parallel, and the numbers don't depend
on how many threads there are. The backward pass goes from the last step to the
first and multiplies by the transposed U; it reads the gates, which overwrite u,
and c or q. The gradient of U is one product over all steps.
Sources: those of cells/lstm.py, cells/min_lstm.py and cells/gru.py.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops import precision


class Kind(NamedTuple):
  """How many gates a recurrence has, and whether it has c."""

  gates: int
  cell: bool


KINDS = {
  'lstm': Kind(4, True),
  'min_lstm': Kind(3, True),
  'gru': Kind(3, False),
}
lacking = checks.lacking_native


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
    (h_BxS, c_BxS or None, h_BxLxS): the states are float32, and h_BxLxS has
    u's dtype.

  Raises:
    ValueError: an unknown kind, shapes that disagree, or c or b for a kind that
      doesn't have them.
    NotImplementedError: the library isn't available, or a second derivative is
      needed.
  """
  _check(kind, h_BxS, c_BxS, u_BxLx_, kernel_Sx_, bias_S, starts_BxL)
  if why := lacking():
    raise NotImplementedError(why)
  none = jnp.zeros((0,))
  starts = checks.to_marks(starts_BxL, len(u_BxLx_))
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
  for name, x, needed in (
    ('c_BxS', c, KINDS[kind].cell),
    ('bias_S', bias, kind == 'gru'),
  ):
    if (x is not None) != needed:
      raise ValueError(
        f'{name} with kind={kind!r}: give {"it" if needed else "None"}'
      )
  width = h.shape[-1] * KINDS[kind].gates
  checks.check_shapes(
    ('h_BxS', h, (u.shape[0], kernel.shape[0])),
    ('c_BxS', c, h.shape),
    ('u_BxLx_', u, (*u.shape[:2], width)),
    ('kernel_Sx_', kernel, (h.shape[-1], width)),
    ('bias_S', bias, h.shape[-1:]),
  )
  checks.check_rows('u_BxLx_', u, starts)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(kind, u, kernel, bias, h0, c0, starts):
  h, c, *_ = _forward(kind, False)(u, kernel, bias, h0, c0, starts)
  return h, c


def _run_forward(kind, u, kernel, bias, h0, c0, starts):
  h, c, *kept = _forward(kind, True)(u, kernel, bias, h0, c0, starts)
  return (h, c), (kernel, h0, c0, starts, h, *kept)


def _run_backward(kind, residuals, d):
  kernel, h0, c0, starts, h, gates, extra = residuals
  d_h0, d_c0, d_u, before, d_product = _backward(kind)(
    kernel, h0, c0, starts, h, gates, extra, *d
  )
  d_product = d_u if KINDS[kind].cell else d_product
  d_kernel = precision.weight_gradient(before, d_product, 'float32')
  S = kernel.shape[0]
  d_bias = d_product[..., -S:].sum((0, 1)) if kind == 'gru' else jnp.zeros((0,))
  return d_u, d_kernel, d_bias, d_h0, d_c0, None


_run.defvjp(_run_forward, _run_backward)


@functools.cache
def _forward(kind, keeps):
  """Returns u, U, b, h0, c0, starts -> h, c, gates, and c or q of all steps.

  The last two are for the backward pass, and empty unless it `keeps` them.
  """

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
  """Returns the backward pass of one kind.

  U, h0, c0, starts, h, gates, c or q, and the gradients of h and the last c ->
  the gradients of h0, c0 and u, h before each step, and the gradient of U h
  where it differs from u's.
  """

  def call(kernel, h0, c0, starts, h, gates, extra, d_h, d_c):
    B, L, S = h.shape
    cell = KINDS[kind].cell
    width = kernel.shape[1]
    results = [
      _float32(B, S),
      _float32(*c0.shape),
      _float32(B, L, width),
      _float32(B, L, S),
      _float32(B, L, 0 if cell else width),
    ]
    operands = kernel, h0, c0, starts, h, gates, extra, d_h, d_c
    # A step's gates and c or q are read before its results are written.
    aliases = {5: 2, 6: 3}
    return tuple(
      library.call(f'{kind}_backward', results, *operands, aliases=aliases)
    )

  return transforms.by_rows(shared=(0,))(call)


def _float32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)
