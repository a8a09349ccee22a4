"""Each implementation against the float64 oracle, values and gradients.

The rows of a batch differ in their gates, so that one compilation serves all
kinds. Errors are relative to the largest number of the oracle's tensor (of
that row); where the oracle is all zeros, so must the answer be.
"""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.ops import gla
from tests.ops import gla_oracle

GATES = {
  'sigmoid': lambda rng, shape: -np.logaddexp(0, -rng.normal(size=shape)),
  'zero': lambda rng, shape: np.full(shape, -np.inf),
  '1e-30': lambda rng, shape: np.full(shape, np.log(1e-30)),
  'exp(-50)': lambda rng, shape: np.full(shape, -50.0),
  'one': lambda rng, shape: np.zeros(shape),
  'nearly one': lambda rng, shape: -1e-4 * rng.exponential(size=shape),
  'mixture': lambda rng, shape: rng.choice(
    [-np.inf, -1e4, np.log(1e-30), -50, -1, -1e-6, 0], size=shape
  ),
  'large values': lambda rng, shape: -rng.exponential(size=shape),
}
STARTS = ('none', 'first', 'several')  # one row of each kind of gate for each
SCALES = {'q': 1e12, 'k': 1e-9, 'v': 1e15}  # of the row 'large values'

# The largest error of any tensor with float32 inputs.
TOLERANCE = {  # measured: sigmoid, 0, 1e-30, e^-50, 1, nearly 1, mixed, large
  'step': 4e-7,  # e-7: 1.0, 1.8, 0.8, 1.5, 2.0, 1.0, 1.6, 1.1
  'scan': 7e-7,  # e-7: 1.5, 1.0, 1.1, 1.6, 2.3, 3.0, 1.8, 1.2
  'associative': 7e-7,  # e-7: 1.8, 1.8, 1.1, 1.2, 2.0, 3.2, 1.6, 1.7
  'chunked': 1.5e-6,  # e-7: 2.8, 1.5, 2.0, 2.5, 3.9, 7.4, 1.8, 3.6
}
# With bfloat16 inputs the states, float32, keep to the table above. The others
# are stored with 8 bits, so that 2^-8 = 3.9e-3 is theirs by rounding alone.
TOLERANCE_BFLOAT16 = 2**-8 + 1e-6  # measured: 3.5e-3 (chunked: 3.8e-3)

# impl, L, chunk_length, read, decay
CASES = (
  ('step', 1, 64, 'after', 'key'),
  ('step', 1, 64, 'before', 'head'),
  ('scan', 2, 64, 'before', 'key'),
  ('scan', 17, 64, 'after', 'key'),
  ('scan', 65, 64, 'before', 'head'),
  ('associative', 1, 64, 'after', 'key'),
  ('associative', 64, 64, 'after', 'head'),
  ('chunked', 1, 16, 'after', 'key'),
  ('chunked', 2, 7, 'before', 'head'),
  ('chunked', 15, 16, 'after', 'key'),
  ('chunked', 16, 16, 'after', 'head'),
  ('chunked', 17, 16, 'before', 'key'),
  ('chunked', 17, 20, 'after', 'head'),
  ('chunked', 63, 64, 'before', 'key'),
  ('chunked', 65, 64, 'after', 'key'),
  ('chunked', 65, 1, 'after', 'head'),
  ('chunked', 70, 64, 'before', 'head'),
  ('chunked', 130, 7, 'after', 'key'),
  ('chunked', 130, 16, 'before', 'head'),
  ('chunked', 130, 20, 'before', 'key'),
  ('chunked', 130, 64, 'after', 'key'),
)
CASES_BFLOAT16 = (
  ('step', 1, 64, 'after', 'key'),
  ('scan', 17, 64, 'after', 'key'),
  ('associative', 17, 64, 'after', 'key'),
  ('chunked', 65, 64, 'after', 'key'),
  ('chunked', 33, 16, 'before', 'head'),
)


@functools.partial(jax.jit, static_argnames=('impl', 'chunk_length', 'read'))
def both_ways(inputs, starts, cotangents, impl, chunk_length, read):
  """The state and y, and the gradients of all inputs."""

  def run(*x):
    return gla.recurrence(
      *x, starts_BxL=starts, impl=impl, chunk_length=chunk_length, read=read
    )

  out, back = jax.vjp(run, *inputs)
  return out, gla_oracle.Inputs(*back(cotangents))


def draw(L, decay='key', dtype=jnp.float32, H=2, K=3, P=4, seed=0):
  """Inputs, starts and cotangents, a row for each kind of gate and start."""
  rng, rows = np.random.default_rng(seed), len(GATES) * len(STARTS)

  def normal(*shape):
    return rng.normal(size=(rows, *shape)).astype(np.float32)

  wide = (len(STARTS), L, H, K if decay == 'key' else 1)
  loga = np.concatenate([gate(rng, wide) for gate in GATES.values()])
  values = {'q': normal(L, H, K), 'k': normal(L, H, K), 'v': normal(L, H, P)}
  for name, scale in SCALES.items():
    values[name][-len(STARTS) :] *= scale
  values = {name: jnp.asarray(x, dtype) for name, x in values.items()}
  loga = jnp.asarray(loga.astype(np.float32), dtype)
  inputs = gla_oracle.Inputs(normal(H, K, P), **values, loga=loga)
  several = (rng.random((rows, L)) < 0.15) | (np.arange(L) == L // 2)
  kind = np.arange(rows)[:, None] % len(STARTS)
  starts = np.where(kind == 1, np.arange(L) == 0, several & (kind == 2))
  cotangents = normal(H, K, P), jnp.asarray(normal(L, H, P), dtype)
  return inputs, starts.astype(np.int32), cotangents


def errors(inputs, starts, cotangents, impl, chunk_length=64, read='after'):
  """The error of each tensor in each row: {name: numbers of shape B}."""
  got = both_ways(inputs, starts, cotangents, impl, chunk_length, read)
  want = gla_oracle.forward(inputs, starts, read)
  gradients = gla_oracle.backward(inputs, starts, *cotangents, read)
  found = dict(zip(('state', 'y'), map(relative, got[0], want), strict=True))
  for name in gradients._fields:
    pair = getattr(got[1], name), getattr(gradients, name)
    found[f'd_{name}'] = relative(*pair)
  return found


def relative(got, want):
  """max |got - want| / max |want| of each row; infinite for NaN."""
  got, want = (np.float64(x).reshape(len(x), -1) for x in (got, want))
  wrong, size = abs(got - want).max(1), abs(want).max(1)
  error = np.where(wrong == 0, 0.0, wrong / np.where(size > 0, size, 1e-300))
  return np.where(np.isfinite(error), error, np.inf)


def refused(found, tolerance):
  """The errors above a tolerance, by name, gate and kind of start."""
  rows = [f'{gate}, starts: {start}' for gate in GATES for start in STARTS]
  return {
    f'{name} ({row})': float(error)
    for name, by_row in found.items()
    for row, error in zip(rows, by_row, strict=True)
    if not error <= tolerance
  }


@pytest.mark.parametrize(('impl', 'L', 'chunk_length', 'read', 'decay'), CASES)
def test_values_and_gradients_equal_the_oracle(
  impl, L, chunk_length, read, decay
):
  found = errors(*draw(L, decay), impl, chunk_length, read)
  assert refused(found, TOLERANCE[impl]) == {}


@pytest.mark.parametrize(
  ('impl', 'L', 'chunk_length', 'read', 'decay'), CASES_BFLOAT16
)
def test_16_bits_in_cost_no_more_than_their_rounding_on_the_way_out(
  impl, L, chunk_length, read, decay
):
  drawn = draw(L, decay, jnp.bfloat16)
  state, y = both_ways(*drawn, impl, chunk_length, read)[0]
  assert (state.dtype, y.dtype) == (jnp.float32, jnp.bfloat16)
  found = errors(*drawn, impl, chunk_length, read)
  in_float32 = {name: found.pop(name) for name in ('state', 'd_state')}
  assert refused(in_float32, TOLERANCE[impl]) == {}
  assert refused(found, TOLERANCE_BFLOAT16) == {}


@hypothesis.given(
  st.sampled_from(['chunked', 'chunked', 'associative']),
  st.integers(1, 20),
  st.integers(1, 20),
  st.sampled_from(gla.READS),
  st.sampled_from(['key', 'head']),
  st.tuples(*[st.integers(1, 3)] * 3),
  st.sampled_from([slice(None), slice(4, 5)]),
)
@hypothesis.settings(max_examples=4)
def test_any_shape_equals_the_oracle(
  impl, L, chunk_length, read, decay, widths, rows
):
  drawn = draw(L, decay, jnp.float32, *widths)
  some = jax.tree.map(lambda x: x[rows], drawn)
  found = errors(*some, impl, chunk_length, read)
  assert max(x.max() for x in found.values()) <= TOLERANCE[impl], found


@pytest.mark.parametrize('read', gla.READS)
def test_the_oracle_s_gradients_are_differences_of_its_values(read):
  inputs, starts, cotangents = jax.tree.map(
    lambda x: np.float64(x[:3]), draw(5)
  )
  gradients = gla_oracle.backward(inputs, starts, *cotangents, read)

  def loss(**changed):
    out = gla_oracle.forward(inputs._replace(**changed), starts, read)
    return sum((c * x).sum() for c, x in zip(cotangents, out, strict=True))

  for name in inputs._fields:
    x = getattr(inputs, name)
    slopes = np.zeros_like(x)
    for at in np.ndindex(x.shape):
      moved = np.zeros_like(x)
      moved[at] = 1e-5
      rise = loss(**{name: x + moved}) - loss(**{name: x - moved})
      slopes[at] = rise / 2e-5
    np.testing.assert_allclose(
      getattr(gradients, name), slopes, rtol=1e-6, atol=1e-8
    )
