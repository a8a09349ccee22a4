"""The self-check finds errors and says where they are."""

import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import selfcheck
from rnn_jax.ops import delta
from rnn_jax.ops import gla
from rnn_jax.ops import products
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.selfcheck import base
from rnn_jax.selfcheck import delta as delta_check
from rnn_jax.selfcheck import gla as gla_check
from rnn_jax.selfcheck import products as products_check
from tests.support import launchers


@pytest.mark.native
def test_every_implementation_is_checked():
  with gla_pallas.interpret():
    cases = list(selfcheck.cases())
  for op, module in (('gla', gla), ('delta', delta), ('general', delta)):
    of_op = [case for case in cases if case.op == op]
    assert {case.impl for case in of_op} == {*module.IMPLS} - {'auto'}
  for impl in {*gla.IMPLS} - {'auto'}:
    some = [case for case in cases if (case.op, case.impl) == ('gla', impl)]
    assert {case.decay for case in some} == {*gla_check.DECAYS}
    assert {case.dtype for case in some} == {'float32', 'bfloat16'}
  of_products = {(c.impl, c.dtype) for c in cases if c.op == 'product'}
  assert of_products == {
    (impl, format)
    for impl in ('plain', 'native')
    for format in products.FORMATS
  }


def test_the_worst_tensor_is_named():
  case = base.Case('scan', 3, 2, 2)
  result = selfcheck.check(case)
  assert result.passed and 0 < result.error <= result.bound
  assert 'gates ' in result.where


@pytest.mark.parametrize('tensor', ('y', 'd_q', 'd_loga'))
def test_a_wrong_tensor_is_found(monkeypatch, tensor):
  right = gla_check.errors

  def wrong(*args, **options):
    by_row = right(*args, **options)
    by_row[tensor][4] = 2e-3
    return by_row

  monkeypatch.setattr(gla_check, 'errors', wrong)
  result = selfcheck.check(base.Case('scan', 3, 2, 2))
  assert not result.passed and result.error == 2e-3
  assert result.where == f'{tensor}, gates zero, starts: first'


@pytest.mark.parametrize('op', ('delta', 'general'))
def test_a_wrong_form_of_the_delta_rule_is_found(monkeypatch, op):
  case = base.Case('scan', 5, 3, 2, op=op)
  assert selfcheck.check(case).passed
  run = delta_check.RUN[op]

  def wrong(state, q, *others, **options):
    return run(state, 1.0001 * q, *others, **options)

  monkeypatch.setitem(delta_check.RUN, op, wrong)
  delta_check.both_ways.cache_clear()
  result = selfcheck.check(case)
  delta_check.both_ways.cache_clear()
  assert not result.passed and result.where.startswith(('y', 'd_'))


@pytest.mark.native
def test_products_are_checked_with_the_bits_of_their_rows(monkeypatch):
  B, K, F = products_check.SHAPES[1]
  for case in products_check.cases():
    if case.L == B:
      result = products_check.check(case)
      assert result.passed and result.error > 0, result
  case = base.Case('native', B, K, F, dtype='int8', op=products_check.OP)
  right = products.multiply

  def wrong(x, packed):
    return right(x, packed) + 1e-6 * (len(x) == 1)

  monkeypatch.setattr(products, 'multiply', wrong)
  result = selfcheck.check(case)
  assert not result.passed and 'other bits' in result.where


def test_nan_is_an_infinite_error():
  want = np.ones((2, 3))
  got = jnp.asarray(want).at[1, 1].set(jnp.nan)
  assert gla_check.relative(got, want, want).tolist() == [0, np.inf]
  assert gla_check.relative(want, 0 * want, 0 * want)[0] > 1e299


@pytest.mark.slow
def test_the_command_prints_a_table_and_its_verdict():
  code, out, err = launchers.run('selfcheck', '--impl=step')
  assert code == 0, err
  assert '11 of 11 within their bounds' in out
  code, _, err = launchers.run('selfcheck', '--impl=best')
  assert code == 1 and "impl='best': choose one of" in err
