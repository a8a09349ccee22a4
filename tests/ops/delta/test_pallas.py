"""The delta rule's kernel, interpreted on the CPU, and for a GPU without one.

Gates and rates are those of test_delta.py; the oracle is in float64.
"""

import functools
import re
import tempfile

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import target
from rnn_jax.ops import delta
from rnn_jax.ops import precision
from rnn_jax.ops.delta import chunked as delta_chunked
from rnn_jax.ops.delta import pallas as delta_pallas
from rnn_jax.ops.gla import pallas as gla_pallas
from rnn_jax.profiling import kernels
from tests.ops.delta import test_delta
from tests.support import loops

# What jax 0.12 announces is said in docs/recurrence.md.
pytestmark = pytest.mark.filterwarnings(
  'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
)

# form, operands, decay, chunk_length, (L, H, K, P), bound. Of these, one has
# several chunks, one states of several tiles, and one blocks of 2 steps.
CASES = (
  ('delta', 'float32', 'key', 16, (37, 2, 20, 5), test_delta.CLOSE),
  ('general', 'float32', 'head', None, (40, 1, 65, 40), test_delta.CLOSE),
  ('delta', 'float32', 'head', None, (9, 1, 4, 3), test_delta.CLOSE),
  ('delta', 'tf32', 'key', None, (40, 1, 32, 16), 3e-2),
  ('general', 'bfloat16', 'key', None, (40, 1, 32, 16), 2e-2),
)


@pytest.fixture(autouse=True, scope='module')
def _compile_in_a_hurry():
  """Interpreted kernels take longer to compile than to run."""
  name = 'jax_disable_most_optimizations'
  before = jax.config.read(name)
  jax.config.update(name, True)
  yield
  jax.config.update(name, before)


@pytest.mark.parametrize(
  ('form', 'operands', 'decay', 'chunk_length', 'widths', 'bound'), CASES
)
def test_values_and_gradients_equal_the_oracle(
  form, operands, decay, chunk_length, widths, bound
):
  drawn = test_delta.draw(form, decay, widths, 0)
  with gla_pallas.interpret():
    run = test_delta.both_ways(form, 'pallas', chunk_length, operands)
    errors = test_delta.errors_of(run(*drawn), *drawn)
  assert all(error <= bound for error in errors.values()), errors
  if operands != 'float32':
    assert errors['y'] > bound / 64  # they are rounded
