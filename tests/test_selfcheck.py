"""The self-check finds errors and says where they are."""

import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import selfcheck
from rnn_jax.ops import gla
from rnn_jax.ops.gla import pallas as gla_pallas
from tests.support import launchers
from tests.support import tiny


@pytest.mark.native
def test_every_implementation_is_checked():
  with gla_pallas.interpret():
    cases = list(selfcheck.cases())
  impls = {case.impl for case in cases}
  assert impls == set(gla.IMPLS) - {'auto'}
  for impl in impls:
    some = [case for case in cases if case.impl == impl]
    assert {case.decay for case in some} == {'key', 'head'}
    assert {case.dtype for case in some} == {'float32', 'bfloat16'}


def test_the_worst_tensor_is_named():
  case = selfcheck.Case('scan', 3, 2, 2)
  result = selfcheck.check(case)
  assert result.passed and 0 < result.error <= result.bound
  assert 'gates ' in result.where


@pytest.mark.parametrize('tensor', ('y', 'd_q', 'd_loga'))
def test_a_wrong_tensor_is_found(monkeypatch, tensor):
  right = selfcheck.errors

  def wrong(*args, **options):
    by_row = right(*args, **options)
    by_row[tensor][4] = 2e-3
    return by_row

  monkeypatch.setattr(selfcheck, 'errors', wrong)
  result = selfcheck.check(selfcheck.Case('scan', 3, 2, 2))
  assert not result.passed and result.error == 2e-3
  assert result.where == f'{tensor}, gates zero, starts: first'


def test_nan_is_an_infinite_error():
  want = np.ones((2, 3))
  got = jnp.asarray(want).at[1, 1].set(jnp.nan)
  assert selfcheck.relative(got, want, want).tolist() == [0, np.inf]
  assert selfcheck.relative(want, 0 * want, 0 * want)[0] > 1e299


@pytest.mark.slow
def test_the_command_prints_a_table_and_its_verdict():
  code, out, err = tiny.finish(tiny.launch('selfcheck', '--impl=step'))
  assert code == 0, err
  assert '6 of 6 within their bounds' in out
  code, _, err = launchers.run('selfcheck', '--impl=best')
  assert code == 1 and "impl='best': choose one of" in err
