"""The sLSTM's recurrence, in C++ on a CPU: see native/slstm.cc.

    i, f, a_z, a_o = u_t + R h_{t-1}         z = tanh(a_z)    o = sigmoid(a_o)
    log f' = log sigmoid(f), or f where `exponential`
    m_t = max(log f' + m_{t-1}, i)
    c_t = exp(log f' + m_{t-1} - m_t) c_{t-1} + exp(i - m_t) z
    n_t = exp(log f' + m_{t-1} - m_t) n_{t-1} + exp(i - m_t)
    h_t = o c_t / n_t

exp(m) is a common factor of what c and n stand for: h doesn't depend on m, and
n is 1 or more. A state with n = 0 has no past, whatever its m: then m_t = i.
R has a block for each head, HxKx(4 K). Shapes: u is BxLx(4 S), in the order i,
f, z, o of S units each, S = H K; h, c, n and m are BxS. Everything is float32.

One thread steps through a head of a row; heads and rows run in parallel, and
the numbers don't depend on how many threads there are. The backward pass goes
from the last step to the first; it reads the gates, which overwrite u, c, n,
and the derivative of log f'. The gradient of R is summed by row in the same
pass if heads are narrow, 16 steps at a time; else it is a product over all
steps.

Gradients take m_t as a constant, both as its step's divisor and as the next
one's factor: the two cancel in those of h, exactly. Those of a loss of the last
c and n are at that m; the last m has none.
Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops import precision

GATES = 4
KIND = 'slstm'  # of the library's handlers
NARROW = 64  # K up to which the C++ code sums the gradient of R
lacking = checks.lacking_native


class State(NamedTuple):
  """The state between two steps."""

  h_BxS: jax.Array
  c_BxS: jax.Array
  n_BxS: jax.Array
  m_BxS: jax.Array


def recurrence(
  state: State,
  u_BxLx_: jax.Array,
  kernel_HxKx_: jax.Array,
  *,
  exponential: bool = False,
  starts_BxL: jax.Array | None = None,
) -> tuple[State, jax.Array]:
  """Runs the recurrence over time, any L >= 1.

  Args:
    state: before the first step.
    u_BxLx_: W x + b of all steps.
    kernel_HxKx_: R.
    exponential: whether f' is exp(f) and not sigmoid(f).
    starts_BxL: nonzero where a document begins: the state is zeroed before it.

  Returns:
    (state, h_BxLxS): the state is float32, and h_BxLxS has u's dtype.

  Raises:
    ValueError: shapes that disagree.
    NotImplementedError: the library isn't available, or a second derivative
      is taken.
  """
  heads, width = kernel_HxKx_.shape[:2]
  rows = u_BxLx_.shape[0], heads * width
  checks.check_shapes(
    *((f'state.{name}', x, rows) for name, x in state._asdict().items()),
    ('u_BxLx_', u_BxLx_, (*u_BxLx_.shape[:2], GATES * rows[1])),
    ('kernel_HxKx_', kernel_HxKx_, (heads, width, GATES * width)),
  )
  checks.check_rows('u_BxLx_', u_BxLx_, starts_BxL)
  if why := lacking():
    raise NotImplementedError(why)
  starts = checks.to_marks(starts_BxL, len(u_BxLx_))
  floats = (x.astype(jnp.float32) for x in (u_BxLx_, kernel_HxKx_, *state))
  h, *others = _run(exponential, *floats, starts)
  return State(h[:, -1], *others), h.astype(u_BxLx_.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(exponential, u, kernel, h0, c0, n0, m0, starts):
  return _forward(exponential, False)(u, kernel, h0, c0, n0, m0, starts)[:4]


def _run_forward(exponential, u, kernel, h0, c0, n0, m0, starts):
  results = _forward(exponential, True)(u, kernel, h0, c0, n0, m0, starts)
  return results[:4], (kernel, c0, n0, starts, results[0], h0, *results[4:])


def _run_backward(exponential, residuals, d):
  del exponential  # its derivative was kept
  d_h, d_c, d_n, _ = d
  kernel, _, _, starts, h, h0, *_ = residuals
  *of_state, d_u, d_kernels = _backward()(*residuals, d_h, d_c, d_n)
  if _sums(kernel):
    d_kernel = d_kernels.sum(0)
  else:
    before = jnp.concatenate([h0[:, None], h[:, :-1]], 1)
    if starts.size:
      before = jnp.where(starts[..., None] != 0, 0.0, before)
    d_kernel = _of_kernel(before, d_u, kernel.shape)
  return d_u, d_kernel, *of_state, None


_run.defvjp(_run_forward, _run_backward)


def _sums(kernel_HxKx_):
  """Returns whether the C++ code sums the gradient of R."""
  return kernel_HxKx_.shape[1] <= NARROW


def _of_kernel(before_BxLxS, d_BxLx_, shape):
  """Returns the gradient of R, HxKx(4 K): a product for each head."""
  heads, width, _ = shape
  rows = before_BxLxS.shape[:2]
  h_BxLxHxK = before_BxLxS.reshape(*rows, heads, width)
  d_BxLx4xHxK = d_BxLx_.reshape(*rows, GATES, heads, width)
  products = [
    precision.weight_gradient(
      h_BxLxHxK[:, :, n], d_BxLx4xHxK[..., n, :].reshape(*rows, -1), 'float32'
    )
    for n in range(heads)
  ]
  return jnp.stack(products)


@functools.cache
def _forward(exponential, keeps):
  """Returns u, R, h0, c0, n0, m0, starts -> h, c, n, m and what is kept.

  The last four, the gates, c and n of all steps and the derivatives of log f',
  are for the backward pass, and empty unless it `keeps` them.
  """

  def call(u, kernel, h0, c0, n0, m0, starts):
    B, L, width = u.shape
    S = h0.shape[1]
    results = [
      _float32(B, L, S),
      *[_float32(B, S)] * 3,
      _float32(B, L, width if keeps else 0),
      *[_float32(B, L, S if keeps else 0)] * 3,
    ]
    return library.call(
      f'{KIND}_forward',
      results,
      *(u, kernel, h0, c0, n0, m0, starts),
      aliases={0: 4} if keeps else {},
      exponential=exponential,
    )

  return transforms.by_rows(shared=(1,))(call)


@functools.cache
def _backward():
  """Returns the backward pass.

  R, c0, n0, starts, h, h0, the gates, c and n, the derivatives of log f' and
  the gradients of h, the last c and n -> those of h0, c0, n0, m0, u, and each
  row's part of R's, empty unless it `_sums`.
  """

  def call(kernel, c0, n0, starts, h, h0, gates, c, n, slope, *d):
    B, _, S = h.shape
    results = [
      *[_float32(B, S)] * 4,
      _float32(*gates.shape),
      _float32(B, *kernel.shape) if _sums(kernel) else _float32(B, 0),
    ]
    operands = kernel, c0, n0, starts, h, h0, gates, c, n, slope, *d
    # A step's gates are read before its gradients are written.
    aliases = {6: 4}
    return library.call(f'{KIND}_backward', results, *operands, aliases=aliases)

  return transforms.by_rows(shared=(0,))(call)


def _float32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)
