"""Each form of the delta rule against the float64 oracle, and what it promises.

`DRAWN_CASES=1000 python -m pytest tests/ops/delta -k drawn` draws more.
"""

import functools
import os
import re

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from rnn_jax.native import library
from rnn_jax.ops import delta
from rnn_jax.ops.delta import oracle as delta_oracle
from rnn_jax.selfcheck import delta as check
from tests.support import differences
from tests.support import loops

DRAWN_CASES = int(os.environ.get('DRAWN_CASES', '20'))
B = check.ROWS
# form, impl, chunk_length, decay, (L, H, K, P)
CASES = (
  ('delta', 'step', None, 'key', (1, 2, 3, 4)),
  ('general', 'step', None, 'head', (1, 2, 3, 4)),
  ('delta', 'scan', None, 'key', (17, 2, 3, 4)),
  ('general', 'scan', None, 'head', (17, 2, 3, 4)),
  ('delta', 'chunked', 5, 'key', (37, 2, 3, 4)),
  ('delta', 'chunked', 32, 'head', (70, 1, 8, 5)),
  ('general', 'chunked', 32, 'key', (70, 1, 8, 5)),
  ('general', 'chunked', 1, 'head', (9, 2, 3, 4)),
  ('delta', 'native', None, 'key', (37, 2, 3, 4)),
  ('delta', 'native', 7, 'head', (30, 1, 9, 150)),
  ('general', 'native', None, 'key', (37, 1, 5, 40)),
  ('general', 'native', 100, 'head', (30, 2, 3, 4)),
)
QUICK = CASES[0], CASES[3], CASES[4]
# form, operands, decay, bound. Products of reflections forget nothing, so that
# their errors add up.
CASES_OPERANDS = (
  ('delta', 'tf32', 'key', 12e-3),  # measured: 5.6e-3
  ('general', 'bfloat16', 'key', 1e-2),  # 4.7e-3
)
SOME = [c for c in CASES if c[1] != 'native' or not library.lacking()]


def assert_equals_the_oracle(got, *drawn):
  errors = check.errors(got, *drawn)
  assert all(error <= check.CLOSE for error in errors.values()), errors


@pytest.mark.slow
@pytest.mark.parametrize(('form', 'operands', 'decay', 'bound'), CASES_OPERANDS)
def test_rounded_operands_cost_their_roundings(form, operands, decay, bound):
  drawn = check.draw(form, decay, (40, 1, 16, 8), 0)
  got = check.both_ways(form, 'chunked', 16, operands)(*drawn)
  errors = check.errors(got, *drawn)
  assert all(error <= bound for error in errors.values()), errors
  assert errors['y'] > bound / 16  # they are rounded


def test_the_tables_cover_both_forms_of_every_impl():
  named = {*delta.IMPLS} - {'auto', 'pallas'}  # test_pallas.py's
  assert {case[:2] for case in CASES} == {
    (f, i) for f in check.RUN for i in named
  }


@hypothesis.given(st.integers(0, 2**32 - 1))
@hypothesis.settings(max_examples=max(2, DRAWN_CASES // len(SOME)))
@pytest.mark.parametrize(
  'case',
  [
    pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
    for case in SOME
  ],
  ids=lambda case: '-'.join(map(str, case[:4])),
)
def test_drawn_cases_equal_the_oracle(case, seed):
  form, impl, chunk_length, decay, widths = case
  drawn = check.draw(form, decay, widths, seed)
  got = check.both_ways(form, impl, chunk_length)(*drawn)
  assert_equals_the_oracle(got, *drawn)


@pytest.mark.parametrize('form', check.RUN)
def test_the_oracle_s_gradients_are_finite_differences(form):
  inputs, starts, cotangents = jax.tree.map(
    np.float64, check.draw(form, 'key', (5, 1, 2, 3), 0)
  )
  inputs = inputs._replace(loga=np.clip(inputs.loga, -3, -0.1))
  differences.check(
    lambda *x: delta_oracle.forward(type(inputs)(*x), starts),
    inputs,
    delta_oracle.backward(inputs, starts, *cotangents),
    cotangents,
    scale=1e-3,
    bound=1e-6,
  )


def test_the_delta_rule_is_the_general_form_of_its_vectors():
  x, starts, _ = check.draw('delta', 'key', (9, 2, 3, 4), 0)
  beta = x.beta[..., None]
  general = delta_oracle.General(
    *(x.state, x.q, beta * x.k, x.v, x.loga),
    read=np.exp(x.loga) * x.k,
    write=-beta * x.k,
  )
  for a, b in zip(
    delta_oracle.forward(x, starts),
    delta_oracle.forward(general, starts),
    strict=True,
  ):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_a_step_of_beta_1_replaces_what_its_key_holds():
  (state, q, k, v, loga, _), _, _ = check.draw('delta', 'key', (1, 2, 3, 4), 0)
  new, y = delta.recurrence(
    state, k, k, v, np.zeros_like(loga), np.ones((B, 1, 2))
  )
  np.testing.assert_allclose(y, v, atol=1e-6)
  aside = q - (q * k).sum(-1, keepdims=True) * k  # orthogonal to the key
  read = functools.partial(np.einsum, 'bhkp,bhk->bhp')
  np.testing.assert_allclose(
    read(new, aside[:, 0]), read(state, aside[:, 0]), atol=1e-5
  )


@pytest.mark.slow
@pytest.mark.parametrize('form', check.RUN)
@pytest.mark.parametrize(
  'impl', ['scan', 'chunked', pytest.param('native', marks=pytest.mark.native)]
)
def test_another_document_changes_no_bit_and_gets_no_gradient(form, impl):
  widths = 12, 2, 3, 4
  inputs, _, (d_state, d_y) = check.draw(form, 'head', widths, 0)
  other, *_ = check.draw(form, 'head', widths, 1)
  inputs, other = (
    x._replace(loga=np.full_like(x.loga, -0.1)) for x in (inputs, other)
  )
  # All before step 7 is the other document's, the initial state too.
  starts = np.zeros((B, 12), np.int32)
  starts[:, 7] = 1
  d_y[:, :7] = 0
  mixed = [
    np.concatenate([b[:, :7], a[:, 7:]], 1)
    for a, b in zip(inputs[1:], other[1:], strict=True)
  ]
  changed = type(inputs)(other.state * 1e6, *mixed)
  run = check.both_ways(form, impl, 4)
  state, y, *slopes = jax.device_get(run(inputs, starts, (0 * d_state, d_y)))
  other_state, other_y, *_ = run(changed, starts, (d_state, d_y))
  other_y = np.asarray(other_y)
  assert np.array_equal(state, other_state)
  assert np.array_equal(y[:, 7:], other_y[:, 7:])
  assert not slopes[0].any()
  for slope in slopes[1:]:
    assert not slope[:, :7].any() and slope[:, 8:].any()


def jaxpr(L, form='delta', **options):
  inputs, *_ = check.draw(form, 'key', (L, 2, 3, 4), 0)
  return jax.make_jaxpr(lambda *x: check.RUN[form](*x, **options))(*inputs)


@pytest.mark.native
@pytest.mark.parametrize(
  ('form', 'target'),
  (('delta', 'rnn_jax_delta_forward'), ('general', 'rnn_jax_delta_general_')),
)
def test_auto_is_the_step_for_one_step_and_native_for_more(form, target):
  one = jaxpr(1, form, impl='step')
  assert str(jaxpr(1, form)) == str(one) and 'rnn_jax' not in str(one)
  assert re.findall(target, str(jaxpr(2, form)))


def test_auto_is_chunked_without_the_library(monkeypatch):
  monkeypatch.setattr(library, 'lacking', lambda: 'no compiler')
  assert str(jaxpr(2, impl='auto')) == str(jaxpr(2, impl='chunked'))
  with pytest.raises(NotImplementedError, match='no compiler'):
    jaxpr(2, impl='native')


@pytest.mark.parametrize(
  ('L', 'chunk_length', 'chunks'),
  ((130, 64, 3), (129, 128, 2), (16, 16, 1), (9, 3, 3), (7, 1, 7)),
)
def test_the_chunked_form_scans_chunks(L, chunk_length, chunks):
  traced = jaxpr(L, impl='chunked', chunk_length=chunk_length)
  assert loops.lengths(traced)[0] == chunks


@pytest.mark.native
@pytest.mark.parametrize('impl', ['chunked', 'native'])
def test_the_backward_pass_stores_one_state_per_chunk(impl):
  (L, H, K, P), chunk = (128, 2, 8, 8), 32
  inputs, *_ = check.draw('delta', 'key', (L, H, K, P), 0)
  run = functools.partial(delta.recurrence, impl=impl, chunk_length=chunk)
  back = jax.eval_shape(lambda *x: jax.vjp(run, *x)[1], *inputs)
  kept = [x.size for x in jax.tree.leaves(back) if x.shape[-2:] == (K, P)]
  assert B * H * (L // chunk) * K * P in kept
  assert max(kept) <= B * L * H * max(K, P)


@pytest.mark.native
def test_a_mapped_axis_is_more_rows_of_one_call():
  inputs, *_ = check.draw('delta', 'key', (9, 2, 3, 4), 0)
  run = functools.partial(delta.recurrence, impl='native')
  stacked = [jnp.stack([x, x[::-1]]) for x in inputs]
  program = jax.make_jaxpr(jax.vmap(run))(*stacked)
  assert str(program).count('rnn_jax_delta_forward') == 1
  mapped, one = jax.vmap(run)(*stacked), run(*inputs)
  for both, x in zip(mapped, one, strict=True):
    assert np.array_equal(both[0], x) and np.array_equal(both[1], x[::-1])


def test_16_bit_inputs_are_computed_in_float32():
  inputs, *_ = check.draw('delta', 'key', (9, 2, 3, 4), 0)
  short = [jnp.asarray(x, jnp.bfloat16) for x in inputs]
  run = jax.jit(functools.partial(delta.recurrence, impl='chunked'))
  state, y = run(*short)
  want_state, want_y = run(*(x.astype(jnp.float32) for x in short))
  for got, want in ((state, want_state), (y, want_y)):
    assert np.array_equal(got, want.astype(jnp.bfloat16))


def given(**change):
  inputs, *_ = check.draw('delta', 'key', (3, 2, 3, 4), 0)
  return inputs._replace(**change)


@pytest.mark.parametrize(
  ('inputs', 'options', 'error', 'message'),
  (
    ({}, {'impl': 'fast'}, ValueError, "impl='fast'.*'scan', 'chunked'"),
    ({}, {'impl': 'step'}, NotImplementedError, "not L=3: use 'chunked'"),
    ({}, {'chunk_length': 0}, ValueError, 'chunk_length=0: give 1 or more'),
    ({}, {'operands': 'int8'}, ValueError, "operands='int8': choose one of"),
    (
      {},
      {'impl': 'scan', 'operands': 'tf32'},
      NotImplementedError,
      "impl='scan' multiplies in float32: use one of .*'chunked'",
    ),
    ({}, {'starts_BxL': np.zeros((1, 2))}, ValueError, r'starts_BxL.*\(1, 2\)'),
    ({'loga': np.zeros((B, 3, 2, 2))}, {}, ValueError, 'one decay a head'),
    ({'beta': np.zeros((B, 3, 1))}, {}, ValueError, 'beta_BxLxH.*heads'),
    ({'k': np.zeros((B, 2, 2, 3))}, {}, ValueError, 'k_BxLxHxK.*time'),
  ),
  ids=lambda x: None if isinstance(x, str | type) else '',
)
def test_bad_arguments_are_refused_by_name(inputs, options, error, message):
  with pytest.raises(error, match=message):
    delta.recurrence(*given(**inputs), **options)


def test_bad_vectors_of_the_general_form_are_refused_by_name():
  inputs, *_ = check.draw('general', 'key', (3, 2, 3, 4), 0)
  with pytest.raises(ValueError, match=r'read_BxLxHxK.*key width'):
    delta.general_recurrence(*inputs._replace(read=inputs.read[..., :2]))
