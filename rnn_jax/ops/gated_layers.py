"""Gated recurrences with several products within a step, in C++ on a CPU.

Each product reads what came of the one before: see native/gated_layers.cc.

    rhn         s_0 = h_{t-1}                      for l = 1 ... n:
                a = s_{l-1} U_l + (u_t for l = 1, else b_l)
                c, g = tanh(a_c), sigmoid(a_g)
                s_l = g * c + (1 - g) * s_{l-1}    h_t = s_n
    gru_before  r, z = sigmoid(u_r, u_z + h_{t-1} U)
                n = tanh(u_n + (r * h_{t-1}) U_n)
                h_t = (1 - z) * n + z * h_{t-1}

The parts of u, U and b are in the order c, g and r, z, n. Shapes: u is
BxLx(2 S) or BxLx(3 S); U_l and U are Sx(2 S), U_n is SxS; b_l is 2 S; h is
BxLxS. All is float32. A row is read step by step on one thread, rows by several
threads, and the numbers do not depend on how many. The backward pass goes from
the last step to the first, multiplying with the transposed matrices. It reads
the gates, of which those that u enters are where u was, and computes each s_l,
or r * h, again. The gradient of a matrix is one product over all steps.
Sources: those of cells/rhn.py and cells/gru.py.
"""

import functools

import jax
import jax.numpy as jnp

from rnn_jax.native import library
from rnn_jax.native import transforms
from rnn_jax.ops import checks
from rnn_jax.ops import precision

KINDS = {'rhn': 2, 'gru_before': 3}  # how many parts u has
lacking = checks.lacking_native


def recurrence(
  kind: str,
  h_BxS: jax.Array,
  u_BxLx_: jax.Array,
  kernels: tuple[jax.Array, ...],
  biases: tuple[jax.Array, ...] = (),
  *,
  starts_BxL: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Runs a recurrence over time, any L >= 1.

  Args:
    kind: one of KINDS.
    h_BxS: h before the first step.
    u_BxLx_: W x + b of all steps.
    kernels: U_1 to U_n of 'rhn'; U and U_n of 'gru_before'.
    biases: b_2 to b_n of 'rhn'; 'gru_before' has none.
    starts_BxL: nonzero where a document begins: h is zeroed before it.

  Returns:
    (h_BxS, h_BxLxS): the state is float32, h_BxLxS has u's dtype.

  Raises:
    ValueError: an unknown kind, or shapes that disagree.
    NotImplementedError: no library here, or a gradient of a gradient.
  """
  _check(kind, h_BxS, u_BxLx_, kernels, biases, starts_BxL)
  if why := lacking():
    raise NotImplementedError(why)
  B, S = h_BxS.shape
  starts = checks.to_marks(starts_BxL, B)
  weights: tuple[jax.Array, ...] = kernels
  if kind == 'rhn':
    none = jnp.zeros((0, 2 * S))
    weights = jnp.stack(kernels), jnp.stack(biases) if biases else none
  floats = (u_BxLx_, *weights, h_BxS)
  h = _run(kind, *(x.astype(jnp.float32) for x in floats), starts)
  return h[:, -1], h.astype(u_BxLx_.dtype)


def _check(kind, h, u, kernels, biases, starts):
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: choose one of {tuple(KINDS)}')
  S = h.shape[-1]
  if kind == 'rhn':
    widths, count = (2 * S,) * max(len(kernels), 1), max(len(kernels) - 1, 0)
  else:
    widths, count = (2 * S, S), 0
  for name, given, want in (
    ('kernels', kernels, len(widths)),
    ('biases', biases, count),
  ):
    if len(given) != want:
      raise ValueError(
        f'{name} has {len(given)} arrays with kind={kind!r}: give {want}'
      )
  checks.check_shapes(
    ('h_BxS', h, (u.shape[0], S)),
    ('u_BxLx_', u, (*u.shape[:2], KINDS[kind] * S)),
    *(
      (f'kernels[{n}]', x, (S, width))
      for n, (x, width) in enumerate(zip(kernels, widths, strict=True))
    ),
    *((f'biases[{n}]', x, (2 * S,)) for n, x in enumerate(biases)),
  )
  checks.check_rows('u_BxLx_', u, starts)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(kind, u, kernel, other, h0, starts):
  (h,) = _forward(kind, False)(u, kernel, other, h0, starts)
  return h


def _run_forward(kind, u, kernel, other, h0, starts):
  h, *gates = _forward(kind, True)(u, kernel, other, h0, starts)
  return h, (kernel, other, h0, starts, h, gates)


def _run_backward(kind, residuals, d_h):
  kernel, other, h0, starts, h, gates = residuals
  d_h0, *results = _backward(kind)(kernel, other, h0, starts, h, d_h, *gates)
  ds, inputs = results[: len(gates)], results[len(gates) :]
  gradient = functools.partial(precision.weight_gradient, operands='float32')
  if kind == 'rhn':
    pairs = zip(inputs, ds, strict=True)
    d_kernel = jnp.stack([gradient(x, d) for x, d in pairs])
    d_biases = [d.sum((0, 1)) for d in ds[1:]]
    d_other = jnp.stack(d_biases) if d_biases else jnp.zeros_like(other)
  else:
    width = kernel.shape[1]
    d_kernel = gradient(inputs[0], ds[0][..., :width])
    d_other = gradient(inputs[1], ds[0][..., width:])
  return ds[0], d_kernel, d_other, d_h0, None


_run.defvjp(_run_forward, _run_backward)


def _layers(kind, kernel):
  """How many arrays of gates there are, and of what products read."""
  return (len(kernel), len(kernel)) if kind == 'rhn' else (1, 2)


@functools.cache
def _forward(kind, keeps):
  """u, U, b or U_n, h0, starts -> h and, where the backward pass is to have
  them, the gates of all steps: an array for each layer of 'rhn', else one."""

  def call(u, kernel, other, h0, starts):
    gates = _layers(kind, kernel)[0] if keeps else 0
    results = [
      _float32(*u.shape[:2], h0.shape[1]),
      *[_float32(*u.shape)] * gates,
    ]
    operands = u, kernel, other, h0, starts
    aliases = {0: 1} if keeps else {}
    return library.call(f'{kind}_forward', results, *operands, aliases=aliases)

  return transforms.by_rows(shared=(1, 2))(call)


@functools.cache
def _backward(kind):
  """U, b or U_n, h0, starts, h, its gradient and the gates -> the gradients of
  h0 and of what the gates are activations of, and what each product reads."""

  def call(kernel, other, h0, starts, h, d_h, *gates):
    count, inputs = _layers(kind, kernel)
    results = [
      _float32(*h0.shape),
      *(_float32(*x.shape) for x in gates),
      *[_float32(*h.shape)] * inputs,
    ]
    operands = kernel, other, h0, starts, h, d_h, *gates
    # The gates of a step have been read when their gradients are written.
    aliases = {6 + n: 1 + n for n in range(count)}
    return library.call(f'{kind}_backward', results, *operands, aliases=aliases)

  return transforms.by_rows(shared=(0, 1))(call)


def _float32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)
