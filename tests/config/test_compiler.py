"""XLA's options by name."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import errors
from rnn_jax.config import compiler


@pytest.mark.parametrize('name', sorted(compiler.SETS['cpu']))
def test_the_sets_of_this_platform_compile(name):
  options = compiler.options(name, 'cpu')
  run = jax.jit(lambda x: jnp.tanh(x) @ x, compiler_options=options)
  assert run(jnp.ones((3, 3))).shape == (3, 3)


@pytest.mark.parametrize('name', sorted(compiler.SETS['cpu']))
def test_what_is_not_finite_is_seen_under_every_set(name):
  options = compiler.options(name, 'cpu')

  def finite(x, y):
    return jnp.isfinite(jnp.sum(x * y)), jnp.isfinite(jnp.sum(x / y - x / y))

  run = jax.jit(finite, compiler_options=options)
  ones = jnp.ones(64)
  assert run(ones, ones) == (True, True)
  assert run(ones, ones.at[3].set(jnp.inf)) == (False, True)
  assert run(ones, ones.at[3].set(0.0)) == (True, False)
  assert run(ones, ones.at[3].set(jnp.nan)) == (False, False)


def test_another_platform_s_set_is_refused():
  with pytest.raises(errors.InputError, match="='latency_hiding': cpu has"):
    compiler.options('latency_hiding', 'cpu')
  assert compiler.options('default', 'tpu') == {}
