"""Each form of the delta rule against the float64 oracle."""

import functools
import logging
import re

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.native import library
from rnn_jax.ops import delta
from rnn_jax.ops.delta import oracle
from tests.ops.delta import draws
from tests.support import loops

# Measured over 1,000 draws of 1 to 130 steps, of the largest number of a row.
BOUNDS = {'step': 2e-6, 'scan': 2e-6, 'chunked': 2e-6, 'native': 2e-6}
# form, impl, L, chunk_length, decay
CASES = (
  ('delta', 'step', 1, None, 'key'),
  ('general', 'step', 1, None, 'head'),
  ('delta', 'scan', 17, None, 'key'),
  ('general', 'scan', 17, None, 'head'),
  ('delta', 'chunked', 1, 1, 'key'),
  ('delta', 'chunked', 37, 7, 'head'),
  ('delta', 'chunked', 130, 64, 'key'),
  ('general', 'chunked', 33, 16, 'head'),
  ('general', 'chunked', 70, 64, 'key'),
  ('delta', 'native', 33, 7, 'key'),
  ('delta', 'native', 130, None, 'head'),
  ('general', 'native', 70, None, 'key'),
  ('general', 'native', 33, 16, 'head'),
)
# H, K, P: rows wider than a vector, blocks of columns that aren't full
WIDTHS = ((1, 32, 64), (2, 17, 48), (1, 5, 130), (2, 1, 1))
DRAWN = ['chunked', 'scan', *['native'] * (not library.lacking())]


def excess(errors, bound):
  """The errors above a bound, by name and gates of the row."""
  return {
    f'{name} ({gate})': float(error)
    for name, by_row in errors.items()
    for gate, error in zip(draws.GATES, by_row, strict=True)
    if not error <= bound
  }


@pytest.mark.parametrize(('form', 'impl', 'L', 'chunk_length', 'decay'), CASES)
def test_values_and_gradients_equal_the_oracle(
  form, impl, L, chunk_length, decay
):
  program = draws.program(form, impl, chunk_length)
  errors = draws.errors(draws.draw(form, L, decay), program)
  assert excess(errors, BOUNDS[impl]) == {}


@pytest.mark.native
@pytest.mark.parametrize('widths', WIDTHS)
@pytest.mark.parametrize('form', draws.RUNS)
def test_the_native_form_equals_the_oracle_at_any_width(form, widths):
  drawn = draws.draw(form, 35, 'key', *widths)
  errors = draws.errors(drawn, draws.program(form, 'native', None))
  assert excess(errors, BOUNDS['native']) == {}


@hypothesis.given(
  st.sampled_from(sorted(draws.RUNS)),
  st.sampled_from(DRAWN),
  st.integers(1, 20),
  st.integers(1, 20),
  st.sampled_from(['key', 'head']),
  st.tuples(*[st.integers(1, 3)] * 3),
  st.integers(0, 99),
)
@hypothesis.settings(max_examples=4)
def test_any_shape_equals_the_oracle(
  form, impl, L, chunk_length, decay, widths, seed
):
  drawn = draws.draw(form, L, decay, *widths, seed=seed)
  errors = draws.errors(drawn, draws.program(form, impl, chunk_length))
  assert excess(errors, BOUNDS[impl]) == {}


@pytest.mark.parametrize('form', draws.RUNS)
def test_the_oracle_s_gradients_are_finite_differences(form):
  inputs, starts, cotangents = jax.tree.map(
    lambda x: np.float64(x[:3]), draws.draw(form, 4, H=1, K=2, P=2)
  )
  inputs = inputs._replace(loga=np.maximum(inputs.loga, -3.0))
  gradients = oracle.backward(inputs, starts, *cotangents)

  def loss(**changed):
    out = oracle.forward(inputs._replace(**changed), starts)
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


def test_the_delta_rule_is_the_general_form_of_its_keys():
  inputs, starts, _ = jax.tree.map(np.float64, draws.draw('delta', 9))
  others = jax.tree.map(np.float64, draws.draw('general', 9)[0])
  one = oracle.forward(inputs, starts)
  for a, b in zip(one, oracle.forward(others, starts), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize('impl', DRAWN)
def test_a_step_of_beta_1_replaces_what_its_key_holds(impl):
  """With no decay and orthogonal keys, a memory reads back what was written."""
  keys = jnp.eye(4)[jnp.array([0, 1, 2, 0, 3])][None, :, None]
  values = jnp.arange(15.0).reshape(1, 5, 1, 3)
  zeros = jnp.zeros((1, 1, 4, 3))
  gates, beta = jnp.zeros((1, 5, 1, 1)), jnp.ones((1, 5, 1))
  state, y = delta.recurrence(
    zeros, keys, keys, values, gates, beta, impl=impl, chunk_length=4
  )
  np.testing.assert_allclose(y, values, atol=1e-6)
  rows = values[0, jnp.array([3, 1, 2, 4]), 0]
  np.testing.assert_allclose(state[0, 0], rows, atol=1e-6)


def _given(L=3):
  inputs = draws.draw('delta', L)[0]
  return dict(
    zip(
      (
        'state_BxHxKxP',
        'q_BxLxHxK',
        'k_BxLxHxK',
        'v_BxLxHxP',
        'loga_BxLxHxK',
        'beta_BxLxH',
      ),
      inputs,
      strict=True,
    )
  )


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  (
    ({'impl': 'fast'}, ValueError, "impl='fast'.*'chunked', 'native'"),
    ({'impl': 'step'}, NotImplementedError, "one step, not L=3: use 'chunked'"),
    ({'chunk_length': 0}, ValueError, 'chunk_length=0: give 1 or more'),
    ({'starts_BxL': np.zeros((1, 2))}, ValueError, r'starts_BxL.*\(1, 2\)'),
    ({'loga_BxLxHxK': np.zeros((7, 3, 2, 2))}, ValueError, 'one decay a head'),
    ({'k_BxLxHxK': np.zeros((7, 2, 2, 3))}, ValueError, 'k_BxLxHxK.*time'),
    ({'beta_BxLxH': np.zeros((7, 3, 1))}, ValueError, 'beta_BxLxH'),
  ),
)
def test_bad_arguments_are_refused_by_name(change, error, message):
  with pytest.raises(error, match=message):
    delta.recurrence(**{**_given(), **change})


def _jaxpr(L, **options):
  given = _given(L)
  return jax.make_jaxpr(lambda x: delta.recurrence(**x, **options))(given)


@pytest.mark.native
def test_auto_is_the_step_for_one_step_and_native_for_more(caplog):
  def calls(traced):
    return set(re.findall(r'rnn_jax_\w+', str(traced)))

  delta._log_once.cache_clear()
  with caplog.at_level(logging.INFO):
    assert str(_jaxpr(1)) == str(_jaxpr(1, impl='step'))
    assert calls(_jaxpr(2)) == {'rnn_jax_delta_forward'}
  assert calls(_jaxpr(2, impl='chunked')) == set()
  logged = [record.getMessage() for record in caplog.records]
  assert logged.count("delta.recurrence: impl='auto' runs 'native'") == 1


@pytest.mark.parametrize(
  ('impl', 'chunk_length', 'turns'),
  (('scan', 64, 130), ('chunked', 64, 3), ('chunked', 20, 5)),
)
def test_a_named_implementation_is_the_one_that_runs(impl, chunk_length, turns):
  traced = _jaxpr(130, impl=impl, chunk_length=chunk_length)
  assert turns in loops.lengths(traced)


def test_the_backward_pass_stores_one_state_per_chunk():
  B, L, H, K, P, chunk = 7, 64, 2, 3, 4, 32
  arrays = tuple(_given(L).values())

  def kept(impl):
    run = functools.partial(delta.recurrence, impl=impl, chunk_length=chunk)
    back = jax.eval_shape(lambda *x: jax.vjp(run, *x)[1], *arrays)
    return sum(leaf.size for leaf in jax.tree.leaves(back))

  states = L // chunk * B * H * K * P
  # The inputs, the decays beside their logarithms, and the states.
  least = sum(x.size for x in arrays[1:]) + arrays[4].size + states
  for impl in [x for x in DRAWN if x != 'scan']:
    assert kept(impl) < least + states, impl
  assert kept('scan') > least + states * chunk // 2
