"""Settings of all tests."""

import contextlib
import functools
import gc
import importlib.util
import os
import sys
import time

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from absl import flags
from grain._src.python.dataset.transformations import shuffle

from rnn_jax import errors
from rnn_jax.native import cache
from rnn_jax.native import library
from rnn_jax.system import compile_cache
from rnn_jax.system import host
from rnn_jax.system import target
from rnn_jax.training import loop
from tests.support import tiny
from tests.support import virtual

# Before the first computation, and for the processes that tests start.
os.environ['XLA_FLAGS'] = ' '.join(
  (*virtual.QUICK, os.environ.get('XLA_FLAGS', ''))
).strip()
jax.config.update('jax_numpy_rank_promotion', 'raise')
# How long a command takes must not change what it prints.
os.environ['RNN_JAX_QUIET'] = '1'

# A test that moves the home folder doesn't compile the C++ library again.
with contextlib.suppress(cache.UnavailableError):
  os.environ['RNN_JAX_CACHE'] = str(cache.root())

# They start a hundred processes, each of which would compile the package.
sys.dont_write_bytecode = False
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)

# Tracing makes many objects, and few in circles.
gc.freeze()
gc.set_threshold(100_000)

# Grain takes 3 ms to find where an example of 12 comes in an epoch, as it walks
# through 2**16 places; tests have few examples, and the same ones.
shuffle.index_shuffle.index_shuffle = functools.cache(
  shuffle.index_shuffle.index_shuffle
)

# A failure in CI must fail again here: the examples follow from the test.
hypothesis.settings.register_profile(
  'quick',
  max_examples=20,
  deadline=None,
  derandomize='CI' in os.environ,
)
hypothesis.settings.load_profile('quick')


KEPT = 30 * 24 * 3600  # seconds that a compiled program is kept
MEMORY = 2 * 2**30  # resident bytes above which programs in memory go
# Begun last, one of their files would run by itself.
LONG = (
  'parallel',
  'launch',
  'training',
  'faults',
  'test_configs.py',
  'test_tour.py',
  'test_guides.py',
  'test_start.py',
)


def pytest_collection_modifyitems(items):
  """Puts what has the longest files first; files stay whole."""

  def rank(item):
    room = item.path.relative_to(tiny.ROOT / 'tests').parts[0]
    return LONG.index(room) if room in LONG else len(LONG)

  items.sort(key=rank)


def pytest_runtest_setup(item):
  """Skips what this machine can't run, and says why.

  A test needs what it is marked with, or has as a parameter.
  """
  case = getattr(item, 'callspec', None)
  values = case.params.values() if case else ()
  for name, lacking in LACKING.items():
    named = any(isinstance(x, str) and x == name for x in values)
    if (named or item.get_closest_marker(name)) and (why := lacking()):
      pytest.skip(why)


@pytest.fixture(scope='session', autouse=True)
def _guarded():
  """Trains as launch.train does: nothing moves between devices unasked."""
  train = loop.train

  @functools.wraps(train)
  def guarded(*args, **options):
    with jax.transfer_guard('disallow'):
      return train(*args, **options)

  loop.train = guarded
  yield
  loop.train = train


@functools.cache
def _no_float16():
  """Says why XLA can't compile float16 here; '' if it can."""
  try:
    jax.block_until_ready(jax.jit(lambda x: x.astype('float16'))(jnp.ones(9)))
  except jax.errors.JaxRuntimeError as error:
    return f'no float16 with these instructions: {str(error).splitlines()[0]}'
  return ''


def _no_peers():
  """Says which packages of `make test-peers` are absent; '' if none is."""
  names = (
    'torch',
    'transformers',
    'fastapi',
    'fla',
    'bert_score',
    'datasets',
    'lm_eval',
    'wandb',
  )
  absent = [name for name in names if importlib.util.find_spec(name) is None]
  return f'needs {", ".join(absent)}: make test-peers' if absent else ''


def _no_beam():
  """Says that Apache Beam is absent; '' if it isn't."""
  found = importlib.util.find_spec('apache_beam')
  return '' if found else 'needs apache-beam: make test-beam'


LACKING = {
  'beam': _no_beam,
  'cuda': target.lacking,
  'native': library.lacking,
  'float16': _no_float16,
  'peers': _no_peers,
}


@pytest.fixture(scope='session', autouse=True)
def _programs(request, tmp_path_factory):
  """Keeps compiled programs for other tests, their processes and later runs."""
  folder = tmp_path_factory.getbasetemp().parent / 'programs'
  if kept := getattr(request.config, 'cache', None):
    # A program is code for one kind of processor.
    folder = kept.mkdir(f'programs-{compile_cache.processor()}')
    for path in folder.iterdir():
      with contextlib.suppress(OSError):  # two processes may do this
        if path.stat().st_mtime < time.time() - KEPT:
          path.unlink()
  for name, value in {
    'jax_compilation_cache_dir': str(folder),
    'jax_persistent_cache_min_compile_time_secs': 0.1,
  }.items():
    os.environ[name.upper()] = str(value)
    jax.config.update(name, value)
  # jax reads entries that another process is still writing, and warns.
  os.environ['PYTHONWARNINGS'] = 'ignore:Error reading persistent compilation'


# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope='module', autouse=True)
def _memory():
  """A file finds the programs of those before it, while memory has room."""
  yield
  full = True
  with contextlib.suppress(errors.InputError):
    full = host.resident() > MEMORY
  if full:
    jax.clear_caches()
