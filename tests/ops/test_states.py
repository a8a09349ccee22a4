"""Recurrences whose state is bfloat16 between calls, with a float64 oracle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import gla
from rnn_jax.ops import pairs
from rnn_jax.ops.delta import oracle as delta_oracle
from rnn_jax.ops.gla import oracle as gla_oracle
from rnn_jax.ops.gla import projected
from rnn_jax.selfcheck import delta as delta_check

B, L, H, K = 2, 12, 2, 5
HALF = 2**-8  # half the distance between neighbours, relative to a number
SUMS = 1e-5  # errors of float32, relative to the largest number
pytestmark = pytest.mark.native
# form, decay, P: blocks of whole vectors stay where the state is
CASES = (
  ('gla', 'key', 16),
  ('gla', 'head', 20),
  ('gla before', 'head', 64),
  ('delta', 'key', 16),
  ('delta', 'head', 19),
  ('general', 'key', 64),
)


def rounded(x):
  return np.asarray(x, jnp.bfloat16)


def draw(form, decay, P):
  """(a function of the state and a step's inputs, oracle of both, inputs)."""
  name = form.split()[0]
  if name == 'gla':
    rng = np.random.default_rng(0)
    wide = (B, L, H)
    q, k, v = (rng.normal(size=(*wide, n)) for n in (K, K, P))
    loga = -rng.exponential(size=(*wide, K if decay == 'key' else 1))
    state = rng.normal(size=(B, H, K, P))
    inputs = [np.float32(x) for x in (state, q, k, v, loga)]
    read = 'before' if form.endswith('before') else 'after'
    run = functools.partial(gla.recurrence, impl='native', read=read)
    oracle = functools.partial(_gla, read=read)
  else:
    drawn, *_ = delta_check.draw(name, decay, (L, H, K, P), 0)
    inputs = [x[2 : 2 + B] for x in drawn]  # rows that forget some
    run = functools.partial(delta_check.RUN[name], impl='native')
    oracle = functools.partial(_delta, name)
  return run, oracle, inputs[0], inputs[1:]


def _gla(state, *steps, read):
  given = gla_oracle.Inputs(state, *steps)
  return gla_oracle.forward(given, _no_starts(steps), read)


def _delta(name, state, *steps):
  make = {'delta': delta_oracle.Delta, 'general': delta_oracle.General}[name]
  return delta_oracle.forward(make(state, *steps), _no_starts(steps))


def _no_starts(steps):
  return np.zeros(steps[0].shape[:2], np.int32)


def step_of(inputs, t):
  return [x[:, t : t + 1] for x in inputs]


@pytest.mark.parametrize(('form', 'decay', 'P'), CASES)
def test_each_step_rounds_the_state_once(form, decay, P):
  """A step is float32's, from a state in bfloat16 to the nearest of its own."""
  run, oracle, state, inputs = draw(form, decay, P)
  run, state = jax.jit(run), rounded(state)
  kept = state  # of the oracle, from step to step
  for t in range(L):
    want, want_y = oracle(np.float64(state), *step_of(inputs, t))
    kept = rounded(oracle(np.float64(kept), *step_of(inputs, t))[0])
    new, y = jax.device_get(run(state, *step_of(inputs, t)))
    assert (new.dtype, y.dtype) == (jnp.bfloat16, np.float32)
    size = np.abs(want).max()
    error = np.abs(np.float64(new) - want)
    assert (error <= HALF * np.abs(want) + SUMS * size).all()
    assert error.max() > HALF / 4 * size  # it is rounded
    np.testing.assert_allclose(y, want_y, atol=SUMS * np.abs(want_y).max())
    state = new
  # Where float32's last bits decide, a number is the other neighbour.
  assert np.mean(state == kept) > 0.99


@pytest.mark.parametrize('form', ['gla', 'delta', 'general'])
def test_many_steps_round_the_state_after_the_last(form):
  run, _, state, inputs = draw(form, 'key', 16)
  state = rounded(state)
  new, y = run(state, *inputs)
  exact, want = run(np.float32(state), *inputs)
  np.testing.assert_array_equal(new, rounded(exact))
  np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize('P', [1, 16])
def test_ties_go_to_the_even_number_and_a_nan_stays(P):
  def next_of(states, written):
    state = np.broadcast_to(rounded(states), (1, 1, 1, P))
    one, v = np.ones((1, 1, 1, 1)), np.full((1, 1, 1, P), written)
    given = (np.float32(x) for x in (one, one, v, 0 * one))
    return gla.recurrence(state, *given, impl='native')[0]

  for before, written, after in (
    (1.0, 2**-8, 1.0),
    (1.0, 2**-8 + 2**-20, 1 + 2**-7),
    (1 + 2**-7, 2**-8, 1 + 2**-6),
    (-1.0, -(2**-8), -1.0),
    (2.0**127, 2.0**127, np.inf),
    (np.inf, -np.inf, np.nan),
  ):
    got = next_of(before, written)
    np.testing.assert_array_equal(np.float32(got), np.float32(rounded(after)))


@pytest.mark.parametrize('steps', [1, 3])
def test_the_fused_recurrence_rounds_the_state_of_float32(steps):
  rng = np.random.default_rng(0)
  P = 16
  layout = projected.Layout(K, P, 1, 'silu', 'silu', 'identity')
  state = rounded(rng.normal(size=(B, H, K, P)))
  x = np.float32(rng.normal(size=(B, steps, H, 2 * K + 1 + P)))
  run = functools.partial(projected.recurrence, layout)
  new, y, _ = run(state, x, projected.Weights())
  exact, want, _ = run(np.float32(state), x, projected.Weights())
  assert new.dtype == jnp.bfloat16
  error = np.abs(np.float64(new) - np.float64(exact))
  assert (error <= HALF * np.abs(exact) + 1e-6).all() and error.any()
  np.testing.assert_allclose(y, want, atol=1e-5)


@pytest.mark.parametrize('impl', ['step', 'scan', 'chunked', 'associative'])
def test_other_forms_round_the_same_state(impl):
  _, _, state, inputs = draw('gla', 'key', 16)
  steps = step_of(inputs, 0) if impl == 'step' else inputs
  new, _ = gla.recurrence(rounded(state), *steps, impl=impl)
  exact, _ = gla.recurrence(np.float32(rounded(state)), *steps, impl=impl)
  np.testing.assert_array_equal(new, rounded(exact))


def test_gradients_of_such_a_state_are_those_of_float32():
  _, _, state, inputs = draw('gla', 'key', 16)
  state = rounded(state)

  def loss(state):
    last, y = gla.recurrence(state, *inputs, impl='native')
    return jnp.sum(y) + jnp.sum(last.astype(jnp.float32))

  got = jax.grad(loss)(jnp.asarray(state))
  want = jax.grad(loss)(jnp.float32(state))
  assert got.dtype == jnp.bfloat16
  np.testing.assert_array_equal(got, rounded(want))


def test_pairs_of_steps_return_the_state_in_its_format():
  _, _, state, (q, k, v, _) = draw('gla', 'head', 16)
  state = rounded(state)
  new, y = pairs.past(state, q, k, v)
  exact, want = pairs.past(np.float32(state), q, k, v)
  np.testing.assert_array_equal(new, rounded(exact))
  np.testing.assert_array_equal(y, want)


def test_roundings_last_as_long_as_what_they_round():
  """They add up as independent errors, over the steps that a decay keeps."""
  kept = np.array([0.9, 0.99, 0.999])  # of each head
  steps, P = 1024, 16
  rng = np.random.default_rng(0)
  q, k, v = (
    np.float32(rng.normal(size=(steps, B, 1, len(kept), P))) for _ in range(3)
  )
  loga = np.float32(np.log(kept))[None, None, :, None].repeat(B, 0)

  @jax.jit
  def run(state):
    def step(state, inputs):
      return gla.recurrence(state, *inputs, loga, impl='native')

    return jax.lax.scan(step, state, (q, k, v))[1]

  state = np.zeros((B, len(kept), P, P), np.float32)
  exact, got = (
    np.float64(run(x)[steps // 2 :]) for x in (state, rounded(state))
  )
  errors, sizes = (
    (x**2).mean((0, 1, 2, 4)) ** 0.5 for x in (got - exact, exact)
  )
  # A rounding is 2^-7 / sqrt(12) of a number, at most; measured: 0.8 of this.
  bounds = 2**-7 / 12**0.5 / (2 * (1 - kept)) ** 0.5
  assert (errors < bounds * sizes).all(), errors / sizes / bounds
  assert (errors > bounds * sizes / 4).all()
