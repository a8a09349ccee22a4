"""XLA's options by name."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import errors
from rnn_jax.training import compiler


@pytest.mark.parametrize('name', sorted(compiler.SETS['cpu']))
def test_the_sets_of_this_platform_compile(name):
  options = compiler.options(name, 'cpu')
  run = jax.jit(lambda x: jnp.tanh(x) @ x, compiler_options=options)
  assert run(jnp.ones((3, 3))).shape == (3, 3)


def test_another_platform_s_set_is_refused():
  with pytest.raises(errors.InputError, match="='latency_hiding': cpu has"):
    compiler.options('latency_hiding', 'cpu')
  assert compiler.options('default', 'tpu') == {}
