"""A loss in segments of time is the loss of the whole row, gradients too."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.tasks import language_modeling
from tests.support import tiny

pytestmark = pytest.mark.slow

B, L = 2, 13
CLOSE = 5e-5  # measured: 1.2e-5, of the largest number of each array


def make_task(segment, length=L, **sections):
  raw = tiny.raw_config('unused')
  raw.remat.segment = segment
  raw.data.length = length
  raw.cell.attention = 'dot'  # a state of every kind
  raw.cell.attention_window = 4
  for section, values in sections.items():
    raw[section].update(values)
  return language_modeling.Task(config_lib.parse(raw), tokenizer_lib.Bytes())


@functools.cache
def case():
  """Parameters, a state that is not zero, and a batch with resets."""
  task = make_task(0)
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 257, (B, L + 1)).astype(np.int32)
  weights = rng.choice([0, 1], (B, L)).astype(np.float32)
  starts = (rng.random((B, L)) < 0.2).astype(np.int32)
  batch = batch_lib.Batch(tokens[:, :-1], tokens[:, 1:], weights, starts)
  params = task.init_parameters(jax.random.key(0))
  _, (_, state) = jax.jit(task.loss)(params, task.init_state(B), batch)
  return params, state, batch


@functools.cache
def both_ways(segment, key=None, **sections):
  task, (params, state, batch) = make_task(segment, **sections), case()

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
  def run(params, state):
    return task.loss(params, state, batch, key)

  return run(params, state)


def assert_close(got, want):
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    atol = CLOSE * np.abs(b).max(initial=0)
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize('segment', (4, 12, 13))
def test_segments_add_up_to_the_row(segment):
  assert_close(both_ways(segment), both_ways(0))


def test_every_segment_drops_the_same_channels():
  key = jax.random.key(3)
  model = (('model', (('dropout', 0.5),)),)
  options = {section: dict(values) for section, values in model}
  task, whole = (make_task(n, **options) for n in (4, 0))
  params, state, batch = case()
  got, want = (
    jax.jit(t.loss)(params, state, batch, key) for t in (task, whole)
  )
  assert_close(got, want)
  _, (plain, _) = jax.jit(whole.loss)(params, state, batch)
  _, (sums, _) = want
  assert plain['loss'] != sums['loss']


def test_the_backward_pass_s_memory_does_not_grow_with_the_row():
  def bytes_held(segment, length):
    task = make_task(segment, length, cell={'attention': 'none'})
    spec = jax.ShapeDtypeStruct
    batch = batch_lib.Batch(*[spec((4, length), kind) for kind in 'iifi'])
    params = jax.eval_shape(task.init_parameters, jax.random.key(0))
    state = jax.eval_shape(lambda: task.init_state(4))
    run = jax.jit(jax.grad(lambda *x: task.loss(*x)[0]))
    compiled = run.lower(params, state, batch).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  assert bytes_held(64, 1024) < 0.5 * bytes_held(0, 1024)
