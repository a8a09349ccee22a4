"""Gradients of a scan under every schedule are those of jax.lax.scan."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import remat_scan
from rnn_jax.ops import remat_schedules

pytestmark = pytest.mark.slow

CASES = [
  ('uniform', 1, 0),
  ('uniform', 4, 0),
  ('logarithmic', 1, 0),
  ('logarithmic', 3, 0),
  ('binomial', 1, 3),
  ('binomial', 2, 1),
  ('binomial', 4, 0),
]
L, D = 12, 3


def step(params, state, x, mark):
  state = jax.tree.map(
    lambda s: jnp.where(mark > 0, jnp.zeros_like(s), s), state
  )
  h = jnp.tanh(params['w'] @ state['h'] + x['in'])
  c = 0.9 * state['c'] + h * x['in']
  return {'h': h, 'c': c}, (h + c, c[0])


def inputs(length=L):
  rng = np.random.default_rng(0)

  def draw(*shape):
    return np.float32(rng.standard_normal(shape))

  marks = jnp.zeros(length, jnp.int32).at[5].set(1)
  state = {'h': draw(D), 'c': draw(D)}
  return {'w': draw(D, D)}, state, {'in': draw(length, D)}, marks


def loss(run):
  def value(params, state, x, marks):
    state, (y, z) = run(params, state, x, marks)
    weights = jnp.arange(1.0, y.size + 1).reshape(y.shape)
    return jnp.sum(weights * y) + jnp.sum(z**2) + jnp.sum(state['h'] ** 3)

  return jax.jit(jax.value_and_grad(value, (0, 1, 2)))


def plain(params, state, x, marks):
  return jax.lax.scan(
    lambda state, u: step(params, state, *u), state, (x, marks)
  )


def scheduled(name, every, kept, length=L):
  schedule = remat_schedules.make(name, length // every, kept)

  def run(params, state, x, marks):
    inputs = jax.tree.map(
      lambda u: u.reshape(-1, every, *u.shape[1:]), (x, marks)
    )
    state, y = remat_scan.scan(plain, params, state, inputs, schedule)
    return state, jax.tree.map(lambda u: u.reshape(length, *u.shape[2:]), y)

  return run


@functools.cache
def plain_gradients():
  return loss(plain)(*inputs())


@pytest.mark.parametrize('name, every, kept', CASES)
def test_values_and_gradients_are_those_of_a_plain_scan(name, every, kept):
  expected = plain_gradients()
  got = loss(scheduled(name, every, kept))(*inputs())
  # Sums of the parameters' gradients run in another order.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5),
    got,
    expected,
  )


def test_the_program_does_not_grow_with_the_row():
  def lines(length):
    run = loss(scheduled('binomial', 1, 4, length))
    text = run.lower(*inputs(length)).compile().as_text()
    return sum(' = ' in line for line in text.splitlines())

  assert lines(512) < 1.1 * lines(32)


def test_few_states_are_stored():
  length, width = 512, 16

  def outer(params, state, x, mark):
    del mark
    state = jnp.tanh(state + jnp.outer(x, params @ x))
    return state, state @ x

  def held(schedule):
    def value(params, x):
      state = jnp.zeros((width, width))
      _, y = remat_scan.scan(outer, params, state, (x, ()), schedule)
      return jnp.sum(y**2)

    given = jnp.ones((width, width)), jnp.ones((length, width))
    compiled = jax.jit(jax.grad(value)).lower(*given).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  state = 4 * width**2
  every = held(remat_schedules.make('uniform', length))
  few = held(remat_schedules.make('binomial', length, 8))
  # 504 states less, and no more than a few copies of rows besides.
  assert every - few == pytest.approx(504 * state, rel=0.02)
  assert few < 40 * state + 6 * 4 * length * width


def test_a_different_number_of_blocks_is_refused():
  params, state, x, marks = inputs()
  schedule = remat_schedules.make('uniform', 3)
  with pytest.raises(ValueError, match='12 blocks, the schedule 3'):
    remat_scan.scan(step, params, state, (x, marks), schedule)
