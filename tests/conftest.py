"""Settings of all tests."""

import contextlib
import functools
import gc
import os

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from absl import flags

from rnn_jax.native import cache
from rnn_jax.native import library
from tests import virtual

# Before the first computation, and for the processes that tests start.
os.environ['XLA_FLAGS'] = ' '.join(
  (*virtual.QUICK, os.environ.get('XLA_FLAGS', ''))
).strip()
jax.config.update('jax_numpy_rank_promotion', 'raise')

# A test that moves the home folder doesn't compile the C++ library again.
with contextlib.suppress(cache.UnavailableError):
  os.environ['RNN_JAX_CACHE'] = str(cache.root())

# Tracing makes many objects, and few in circles.
gc.freeze()
gc.set_threshold(100_000)

# A failure in CI must fail again here: the examples follow from the test.
hypothesis.settings.register_profile(
  'quick',
  max_examples=20,
  deadline=None,
  derandomize='CI' in os.environ,
)
hypothesis.settings.load_profile('quick')


def pytest_runtest_setup(item):
  """Skips what this machine can't run, and says why.

  A test needs what it is marked with, or has as a parameter.
  """
  found = getattr(item, 'callspec', None)
  values = found.params.values() if found else ()
  for name, lacking in (('native', library.lacking), ('float16', _no_float16)):
    named = any(isinstance(x, str) and x == name for x in values)
    if (named or item.get_closest_marker(name)) and (why := lacking()):
      pytest.skip(why)


@functools.cache
def _no_float16():
  """Says why XLA can't compile float16 here; '' if it can."""
  try:
    jax.block_until_ready(jax.jit(lambda x: x.astype('float16'))(jnp.ones(9)))
  except jax.errors.JaxRuntimeError as error:
    return f'no float16 with these instructions: {str(error).splitlines()[0]}'
  return ''


@pytest.fixture(scope='session', autouse=True)
def _programs(tmp_path_factory):
  """What one test or command compiles, the others find."""
  folder = tmp_path_factory.getbasetemp().parent / 'programs'
  os.environ['JAX_COMPILATION_CACHE_DIR'] = str(folder)
  jax.config.update('jax_compilation_cache_dir', str(folder))


# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope='module', autouse=True)
def _memory():
  """No file's programs stay in memory behind it."""
  yield
  jax.clear_caches()
