"""Each implementation against the float64 oracle, values and gradients.

The inputs, the measure of error and the bounds are the self-check's.
"""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.native import library
from rnn_jax.ops import gla
from rnn_jax.ops.gla import oracle as gla_oracle
from rnn_jax.selfcheck import gla as selfcheck

# impl, L, chunk_length, read, decay
CASES = (
  ('step', 1, 64, 'after', 'key'),
  ('step', 1, 64, 'before', 'head'),
  ('scan', 17, 64, 'after', 'key'),
  ('scan', 17, 64, 'before', 'shared'),
  ('associative', 1, 64, 'after', 'key'),
  ('associative', 64, 64, 'after', 'head'),
  ('chunked', 2, 7, 'before', 'head'),
  ('chunked', 16, 16, 'after', 'head'),
  ('chunked', 17, 16, 'before', 'key'),
  ('chunked', 65, 64, 'after', 'key'),
  ('chunked', 65, 1, 'after', 'head'),
  ('chunked', 130, 16, 'before', 'head'),
  ('chunked', 33, 16, 'after', 'shared'),
  ('native', 1, None, 'after', 'key'),
  ('native', 33, 7, 'after', 'shared'),
  ('native', 130, 64, 'before', 'head'),
)
QUICK = CASES[1], CASES[2], CASES[6]
# H, K, P: rows wider than a vector, blocks of columns that are not full
NATIVE_WIDTHS = (
  ((1, 32, 64), 'key', 'before'),
  ((1, 32, 64), 'head', 'after'),
  ((2, 17, 48), 'head', 'before'),
  ((1, 5, 130), 'key', 'after'),
  ((2, 1, 1), 'head', 'after'),
  ((1, 40, 200), 'key', 'before'),
)
CASES_BFLOAT16 = (
  ('step', 1, 64, 'after', 'key'),
  ('scan', 17, 64, 'after', 'key'),
  ('associative', 17, 64, 'after', 'key'),
  ('chunked', 17, 16, 'after', 'key'),
  ('native', 65, 16, 'before', 'head'),
)


# L, chunk_length, read, decay, operands
CASES_OPERANDS = (
  (65, 16, 'after', 'key', 'tf32'),
  (65, 32, 'after', 'head', 'bfloat16'),
)


DRAWN = ['chunked', 'chunked', 'associative']
if not library.lacking():
  DRAWN.append('native')


def excess(errors, tolerance):
  """The errors above a tolerance, by name, gate and kind of start."""
  return {
    f'{name} ({row})': float(error)
    for name, by_row in errors.items()
    for row, error in zip(selfcheck.row_names(), by_row, strict=True)
    if not error <= tolerance
  }


@pytest.mark.parametrize(
  ('impl', 'L', 'chunk_length', 'read', 'decay'),
  [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in CASES
  ],
)
def test_values_and_gradients_equal_the_oracle(
  impl, L, chunk_length, read, decay
):
  errors = selfcheck.errors(*selfcheck.draw(L, decay), impl, chunk_length, read)
  assert excess(errors, selfcheck.BOUNDS[impl]) == {}


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize(('widths', 'decay', 'read'), NATIVE_WIDTHS)
def test_the_native_form_equals_the_oracle_at_any_width(widths, decay, read):
  drawn = selfcheck.draw(35, decay, 'float32', *widths)
  errors = selfcheck.errors(*drawn, 'native', None, read)
  assert excess(errors, selfcheck.BOUNDS['native']) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
  ('impl', 'L', 'chunk_length', 'read', 'decay'), CASES_BFLOAT16
)
def test_16_bit_inputs_cost_only_the_rounding_of_results(
  impl, L, chunk_length, read, decay
):
  drawn = selfcheck.draw(L, decay, 'bfloat16')
  got = selfcheck.forward_and_backward(*drawn, impl, chunk_length, read)
  assert [x.dtype for x in got[0]] == [jnp.float32, jnp.bfloat16]
  errors = selfcheck.compare(jax.device_get(got), drawn, read)
  in_float32 = {name: errors.pop(name) for name in ('state', 'd_state')}
  assert excess(in_float32, selfcheck.BOUNDS[impl]) == {}
  assert excess(errors, selfcheck.BOUND_BFLOAT16) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
  ('L', 'chunk_length', 'read', 'decay', 'operands'), CASES_OPERANDS
)
def test_rounded_operands_cost_their_roundings(
  L, chunk_length, read, decay, operands
):
  drawn = selfcheck.draw(L, decay, 'float32', 1, 16, 8)
  errors = selfcheck.errors(*drawn, 'chunked', chunk_length, read, operands)
  bound = selfcheck.BOUNDS_OF_OPERANDS[operands]
  assert excess(errors, bound) == {}
  assert errors['y'].max() > bound / 16  # they are rounded


@pytest.mark.slow
@hypothesis.given(
  st.sampled_from(DRAWN),
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
  drawn = selfcheck.draw(L, decay, 'float32', *widths)
  some = jax.tree.map(lambda x: x[rows], drawn)
  errors = selfcheck.errors(*some, impl, chunk_length, read)
  assert max(x.max() for x in errors.values()) <= selfcheck.BOUNDS[impl], errors


@pytest.mark.parametrize('read', gla.READS)
def test_the_oracle_s_gradients_are_finite_differences(read):
  inputs, starts, cotangents = jax.tree.map(
    lambda x: np.float64(x[:3]), selfcheck.draw(5)
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
