"""The elementwise recurrence against a loop in float64, both ways."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import checks
from rnn_jax.ops import linear_scan
from tests.support import close
from tests.support import loops

LONG = (
  'scan',
  'associative',
  'chunked',
  'native',
)  # those that run more than one step
# impl, L, chunk_length
CASES = (
  ('step', 1, 8),
  ('auto', 1, 8),
  ('auto', 23, 8),
  ('scan', 23, 8),
  ('native', 23, None),
  ('native', 1, None),
  ('associative', 23, 8),
  ('chunked', 23, 8),
  ('chunked', 24, 8),
  ('chunked', 5, 8),
)
NAMES = ('state_BxS', 'f_BxLxS', 'u_BxLxS')
CLOSE = 1e-6  # measured: 3e-7, of the largest number of each array
S = 5


def oracle(state, f, u, starts):
  """The docstring's first equation, float64: the state before each step, h."""
  h, before, after = np.float64(state), [], []
  for t in range(u.shape[1]):
    h = np.where(starts[:, t, None] != 0, 0.0, h)
    before.append(h)
    h = np.float64(f[:, t]) * h + u[:, t]
    after.append(h)
  return np.stack(before, 1), np.stack(after, 1)


def oracle_gradients(state, f, u, starts, d_state, d_h):
  """By the chain rule, one step at a time: of the state, f and u."""
  before, _ = oracle(state, f, u, starts)
  d, d_f, d_u = np.float64(d_state), np.zeros(f.shape), np.zeros(u.shape)
  for t in reversed(range(u.shape[1])):
    d = d + d_h[:, t]
    d_u[:, t], d_f[:, t] = d, d * before[:, t]
    d = np.where(starts[:, t, None] != 0, 0.0, d * np.float64(f[:, t]))
  return d, d_f, d_u


def draw(L, seed=0):
  """A state, f of all kinds by channel, u, and starts by row."""
  rng = np.random.default_rng(seed)
  f = rng.uniform(0, 1, (3, L, S))
  f[..., 1], f[..., 2], f[..., 3] = 0, 1, 1e-30
  f[..., 4] = 1 - 1e-4 * f[..., 4]
  starts = np.zeros((3, L), np.int32)
  starts[1, 0] = 1
  starts[2, [L // 3, L // 2, L - 1]] = 1
  arrays = rng.normal(size=(3, S)), f, rng.normal(size=(3, L, S))
  return *(np.float32(x) for x in arrays), starts


@functools.partial(jax.jit, static_argnums=(0, 1))
def both_ways(impl, chunk_length, inputs, starts, cotangents):
  run = functools.partial(
    linear_scan.recurrence,
    starts_BxL=starts,
    impl=impl,
    chunk_length=chunk_length,
  )
  out, back = jax.vjp(run, *inputs)
  return out, back(cotangents)


@pytest.mark.parametrize(('impl', 'L', 'chunk_length'), CASES)
def test_values_and_gradients_equal_the_oracle(impl, L, chunk_length):
  *inputs, starts = draw(L)
  cotangents = draw(L, 1)[0], draw(L, 1)[2]
  (state, h), got = both_ways(impl, chunk_length, inputs, starts, cotangents)
  _, want = oracle(*inputs, starts)
  assert_close((state, h), (want[:, -1], want))
  assert_close(got, oracle_gradients(*inputs, starts, *cotangents))


assert_close = functools.partial(close.check, tolerance=CLOSE)


def test_the_oracle_s_gradients_are_finite_differences():
  *inputs, starts = (np.float64(x) for x in draw(4))
  cotangents = np.float64(draw(4, 1)[0]), np.float64(draw(4, 1)[2])

  def loss(inputs):
    _, h = oracle(*inputs, starts)
    d_state, d_h = cotangents
    return (d_state * h[:, -1]).sum() + (d_h * h).sum()

  for n, got in enumerate(oracle_gradients(*inputs, starts, *cotangents)):
    slopes = np.zeros_like(inputs[n])
    for at in np.ndindex(slopes.shape):
      ends = []
      for way in (1e-5, -1e-5):
        moved = [x.copy() for x in inputs]
        moved[n][at] += way
        ends.append(loss(moved))
      slopes[at] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(got, slopes, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize('impl', LONG)
def test_another_document_changes_no_bit_and_gets_no_gradient(impl):
  state, f, u, _ = draw(12)
  starts = np.zeros((3, 12), np.int32)
  starts[:, 5] = 1

  @jax.jit
  def second(state, f, u):
    state, h = linear_scan.recurrence(
      state, f, u, starts_BxL=starts, impl=impl, chunk_length=4
    )
    return state, h[:, 5:]

  changed = 1e6 * state, f, u.copy()
  changed[2][:, :5] *= -1e6
  for a, b in zip(second(state, f, u), second(*changed), strict=True):
    assert np.array_equal(a, b)
  loss = jax.grad(lambda *x: jnp.sum(second(*x)[1] ** 2), range(3))
  of_state, of_f, of_u = jax.device_get(jax.jit(loss)(state, f, u))
  assert not of_state.any()
  assert not of_f[:, :6].any() and of_f[:, 6:].any()
  assert not of_u[:, :5].any() and of_u[:, 5:].any()


@pytest.mark.parametrize('impl', LONG)
def test_16_bit_inputs_are_float32_inside(impl):
  state, f, u, starts = draw(23)
  low = f.astype(jnp.bfloat16), u.astype(jnp.bfloat16)
  run = functools.partial(
    linear_scan.recurrence, starts_BxL=starts, impl=impl, chunk_length=8
  )
  last, h = jax.jit(run)(state, *low)
  assert (last.dtype, h.dtype) == (jnp.float32, jnp.bfloat16)
  _, want = oracle(state, *(np.float32(x) for x in low), starts)
  assert_close([last], [want[:, -1]])
  # Half a unit in the last place of bfloat16.
  np.testing.assert_allclose(np.float32(h), want, rtol=2**-8, atol=1e-6)


@pytest.mark.native
def test_the_backward_pass_stores_only_f_and_h():
  *inputs, starts = draw(24)

  def kept(impl):
    run = functools.partial(linear_scan.recurrence, impl=impl, chunk_length=8)
    back = jax.eval_shape(lambda *x: jax.vjp(run, *x)[1], *inputs)
    return sum(leaf.size for leaf in jax.tree.leaves(back))

  state, f, _ = inputs
  assert {kept(impl) for impl in LONG} == {state.size + 2 * f.size}


@pytest.mark.parametrize(
  ('impl', 'L', 'turns'),
  (
    ('step', 1, []),
    ('scan', 23, [23]),
    ('associative', 23, []),
    ('chunked', 23, [8, 3]),
    ('chunked', 5, [5, 1]),
    ('native', 23, []),
  ),
)
def test_a_named_implementation_is_the_one_that_runs(impl, L, turns):
  *inputs, _ = draw(L)
  traced = jax.make_jaxpr(
    functools.partial(linear_scan.recurrence, impl=impl, chunk_length=8)
  )(*inputs)
  assert loops.lengths(traced) == turns


def test_auto_logs_its_choice_once(caplog):
  checks.log_choice.cache_clear()
  with caplog.at_level(logging.INFO):
    for _ in range(2):
      linear_scan.recurrence(*draw(2)[:3])
  logged = [record.getMessage() for record in caplog.records]
  prefix = "linear_scan.recurrence: impl='auto' runs"
  assert sum(message.startswith(prefix) for message in logged) == 1


def test_the_step_is_the_definition():
  state, f, u, _ = map(jnp.asarray, draw(1))
  got = linear_scan.step(state, f[:, 0], u[:, 0])
  want = linear_scan.recurrence(state, f, u, impl='step')
  assert np.array_equal(got[0], want[0])
  assert np.array_equal(got[1], want[1][:, 0])


@pytest.mark.parametrize(
  ('change', 'error', 'message'),
  (
    ({'impl': 'fast'}, ValueError, "impl='fast'.*'associative', 'chunked'"),
    ({'impl': 'step'}, NotImplementedError, "one step, not L=4: use 'chunked'"),
    ({'chunk_length': 0}, ValueError, 'chunk_length=0: give 1 or more'),
    ({'starts_BxL': np.zeros((1, 2))}, ValueError, r'starts_BxL.*\(1, 2\)'),
    ({'f_BxLxS': np.zeros((3, 3, S))}, ValueError, 'u_BxLxS.*time'),
    ({'u_BxLxS': np.zeros((3, 4))}, ValueError, 'it needs 3 axes'),
  ),
)
def test_bad_arguments_are_refused_by_name(change, error, message):
  given = {**dict(zip(NAMES, draw(4), strict=False)), **change}
  arrays = [given.pop(name) for name in NAMES]
  with pytest.raises(error, match=message):
    linear_scan.recurrence(*arrays, **given)


def test_zero_steps_are_refused():
  state, f, u, _ = draw(4)
  with pytest.raises(ValueError, match='L=0: give one step or more'):
    linear_scan.recurrence(state, f[:, :0], u[:, :0])
