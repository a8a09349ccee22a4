"""A loss in segments of time is the loss of the whole row, gradients too."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import segments
from rnn_jax.tasks import language_modeling
from tests.support import close
from tests.support import draws
from tests.support import tiny

pytestmark = pytest.mark.slow

B, L = 2, 13
CLOSE = 5e-5  # measured: 1.2e-5, of the largest number of each array


def make_task(segment, length=L, dropout=0.0):
  raw = tiny.raw_config('unused')
  raw.remat.segment = segment
  raw.data.length = length
  raw.model.update(block='residual', layers=1)
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  raw.model.dropout = dropout
  return language_modeling.Task(config_lib.parse(raw), tokenizer_lib.Bytes())


@functools.cache
def batch():
  """A batch with resets."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 257, (B, L + 1)).astype(np.int32)
  weights = rng.choice([0, 1], (B, L)).astype(np.float32)
  starts = (rng.random((B, L)) < 0.2).astype(np.int32)
  return batch_lib.Batch(tokens[:, :-1], tokens[:, 1:], weights, starts)


@functools.cache
def program(segment):
  """A compiled function of (params, state, key): gradients, (sums, state)."""
  task = make_task(segment, dropout=0.5)

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
  def run(params, state, key):
    return task.loss(params, state, batch(), key)

  return run


@functools.cache
def given():
  """Parameters, and a state that is not zero."""
  task = make_task(0)
  params = draws.parameters(task.init_parameters)
  _, (_, state) = program(0)(params, task.init_state(B), jax.random.key(0))
  return params, state


assert_close = functools.partial(close.check, tolerance=CLOSE)


def test_segments_that_drop_the_same_channels_add_up_to_the_row():
  got, want, other = (
    program(segment)(*given(), jax.random.key(key))
    for segment, key in ((4, 3), (0, 3), (0, 4))
  )
  assert_close(got, want)
  assert other[1][0]['loss'] != want[1][0]['loss']


@pytest.mark.parametrize('segment', (1, 4, 12, 13, 20))
def test_any_segment_is_added_up(segment):
  def run(state, batch, n):
    del n
    state = 2 * state + batch.tokens_BxL.sum(1)
    return state, {'objective': state * batch.weights_BxL.sum()}

  def both_ways(steps):
    def objective(state):
      state, sums = segments.add_up(run, steps, state, batch())
      return sums['objective'].sum(), state

    return jax.jit(jax.grad(objective, has_aux=True))(jnp.ones(B))

  # By hand, segment by segment.
  state, slope, factor = np.ones(B), 0.0, 1.0
  for begin in range(0, L, segment):
    now = slice(begin, begin + segment)
    state = 2 * state + batch().tokens_BxL[:, now].sum(1)
    factor *= 2
    slope += factor * batch().weights_BxL[:, now].sum()
  got_slope, got_state = both_ways(segment)
  np.testing.assert_allclose(got_state, state, rtol=1e-6)
  np.testing.assert_array_equal(got_slope, np.full(B, slope))


def test_the_backward_pass_s_memory_does_not_grow_with_the_row():
  def bytes_held(segment, length):
    task = make_task(segment, length)
    spec = jax.ShapeDtypeStruct
    batch = batch_lib.Batch(*[spec((4, length), kind) for kind in 'iifi'])
    params = jax.eval_shape(task.init_parameters, jax.random.key(0))
    state = jax.eval_shape(lambda: task.init_state(4))
    run = jax.jit(jax.grad(lambda *x: task.loss(*x)[0]))
    compiled = run.lower(params, state, batch).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  assert bytes_held(64, 1024) < 0.5 * bytes_held(0, 1024)
