"""Inputs of the delta rule and of its general form, gates of all kinds."""

import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import delta
from rnn_jax.ops.delta import oracle

# Rows of a batch, by their log-decays: these, or drawn in (-2, 0).
GATES = (None, 0.0, -20.0, -100.0, -1e6, -np.inf, 'mixed')
BETAS = 0.0, 1.0, 2.0
RUNS = {'delta': delta.recurrence, 'general': delta.general_recurrence}


def _gates(rng, kind, shape):
  drawn = -rng.uniform(0.0, 2.0, shape)
  if kind is None:
    return drawn
  if kind != 'mixed':
    return np.full(shape, kind)
  return np.where(
    rng.random(shape) < 0.5,
    drawn,
    rng.choice([0.0, -20.0, -100.0, -1e6, -np.inf], shape),
  )


def draw(form, L, decay='key', H=2, K=3, P=4, seed=0):
  """Returns (inputs of the oracle, starts_BxL, cotangents), float32.

  Keys have norm 1; row n has the gates GATES[n]; each third beta is one of
  BETAS; the last rows have documents that begin within.
  """
  rng = np.random.default_rng(seed)
  B, G = len(GATES), 1 if decay == 'head' else K

  def normal(*shape):
    return rng.normal(size=shape)

  state, q, k, v = (
    normal(B, H, K, P),
    normal(B, L, H, K),
    normal(B, L, H, K),
    normal(B, L, H, P),
  )
  k /= np.linalg.norm(k, axis=-1, keepdims=True)
  loga = np.stack([_gates(rng, kind, (L, H, G)) for kind in GATES])
  beta = rng.uniform(0, 2, (B, L, H))
  beta = np.where(
    rng.random(beta.shape) < 1 / 3, rng.choice(BETAS, beta.shape), beta
  )
  starts = np.zeros((B, L), np.int32)
  starts[::2] = rng.random((len(starts[::2]), L)) < 0.2
  cotangents = normal(B, H, K, P), normal(B, L, H, P)
  if form == 'delta':
    inputs = oracle.Delta(state, q, k, v, loga, beta)
  else:
    read, write = np.exp(loga) * k, -beta[..., None] * k
    inputs = oracle.General(state, q, -write, v, loga, read, write)
  inputs = type(inputs)(*(np.float32(x) for x in inputs))
  return inputs, starts, tuple(np.float32(x) for x in cotangents)


def errors(drawn, forward_and_backward):
  """{name: error by row, relative to the row's largest number}.

  `forward_and_backward(inputs, starts, cotangents)` returns ((state, y), the
  gradients in the order of the inputs).
  """
  inputs, starts, cotangents = drawn
  got, slopes = forward_and_backward(inputs, starts, cotangents)
  want = oracle.forward(inputs, starts)
  wanted = oracle.backward(inputs, starts, *cotangents)
  names = ['state', 'y', *(f'd_{name}' for name in inputs._fields)]
  pairs = zip(names, (*got, *slopes), (*want, *wanted), strict=True)
  return {name: _by_row(np.float64(x), y) for name, x, y in pairs}


def _by_row(got, want):
  axes = tuple(range(1, want.ndim))
  largest = np.abs(want).max(axes)
  apart = np.abs(got - want).max(axes)
  # Below this, such as exp(-100), a number's last digits aren't normal ones.
  return apart / np.maximum(largest, np.finfo(np.float32).tiny / 1e-6)


def program(form, impl, chunk_length):
  """The compiled `forward_and_backward` of an implementation."""
  import jax

  @jax.jit
  def run(inputs, starts, cotangents):
    def f(*arrays):
      return RUNS[form](
        *arrays, starts_BxL=starts, impl=impl, chunk_length=chunk_length
      )

    out, back = jax.vjp(f, *inputs)
    return out, back(cotangents)

  return lambda *args: run(
    *(tuple(map(jnp.asarray, x)) for x in args[:1]),
    jnp.asarray(args[1]),
    args[2],
  )
