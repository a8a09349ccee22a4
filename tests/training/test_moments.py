"""Stored moments: their bytes, and averages that rounding does not stop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnn_jax.ops import blockwise
from rnn_jax.training import moments


def state_bytes(kind, params):
  transform = moments.stored(optax.scale_by_adam(), kind)
  state = jax.eval_shape(transform.init, params)
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))


@pytest.mark.parametrize(
  ('kind', 'each'), (('float32', 8), ('bfloat16', 4), ('int8', 2 + 8 / 256))
)
def test_bytes_per_parameter(kind, each):
  params = {
    'kernel': jnp.zeros((4, 256, 512)),
    'embedding': jnp.zeros((99, 64)),
  }
  count = sum(x.size for x in jax.tree.leaves(params))
  assert state_bytes(kind, params) == pytest.approx(count * each, abs=16)


def test_small_tensors_are_not_quantized():
  params = {'bias': jnp.zeros(moments.SMALL - 1)}
  assert state_bytes('int8', params) == state_bytes('float32', params)


def run(kind, gradients, b2=0.999):
  """Returns the second moment after gradients, one number per step."""
  transform = moments.stored(optax.scale_by_adam(0.9, b2), kind)
  shape = moments.SMALL
  state = transform.init(jnp.zeros(shape))

  def advance(state, gradient):
    _, state = transform.update(jnp.full(shape, gradient), state)
    return state, None

  state, _ = jax.jit(lambda s, g: jax.lax.scan(advance, s, g))(
    state, jnp.float32(gradients)
  )
  return state


def test_a_bfloat16_average_follows_changes_below_its_precision():
  gradients = np.append(np.ones(500), np.zeros(500))
  exact = float(np.mean(run('float32', gradients).nu))
  nu = np.float32(run('bfloat16', gradients).nu)
  # Measured: 4e-4. Rounded to the nearest, it would not fall: 65 % off.
  assert np.mean(nu) == pytest.approx(exact, rel=3e-3)


def test_a_resumed_average_draws_what_an_uninterrupted_one_does():
  state = run('bfloat16', np.ones(3))
  again = run('bfloat16', np.ones(3))
  for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
    np.testing.assert_array_equal(a, b)


def test_a_second_moment_above_0_stays_above_0():
  """Else the first moment would be divided by eps."""
  transform = moments.stored(optax.scale_by_adam(eps=1e-8), 'int8')
  gradient = np.full(moments.SMALL, 1.0, np.float32)
  gradient[1::2] = 1e-5  # squared: 10 decades below, the code has 7
  state = jax.jit(transform.init)(gradient)
  update = jax.jit(transform.update)
  for scale in (1.0, 0.0):
    updates, state = update(np.float32(gradient * scale), state)
  assert np.abs(updates).max() < 1
  smallest = np.asarray(state.nu.codes)[1::2]
  assert (smallest == 1).all() and blockwise.UNSIGNED[1] > 0


def test_a_tensor_in_chunks_is_the_tensor_whole(monkeypatch):
  rng = np.random.default_rng(0)
  gradients = np.float32(rng.normal(size=(3, 180, 128)))  # 90 blocks, by 18
  results = []
  for chunk in (moments.CHUNK, 6144):
    monkeypatch.setattr(moments, 'CHUNK', chunk)
    transform = moments.stored(optax.scale_by_adam(), 'int8')
    state = jax.jit(transform.init)({'kernel': gradients[0]})
    update = jax.jit(transform.update)
    for gradient in gradients:
      updates, state = update({'kernel': gradient}, state)
    results.append((updates, state))
  # The compiled programs round a last bit in other places.
  exact, chunked = (
    jax.tree.map(np.float64, jax.device_get(x)) for x in results
  )
  np.testing.assert_allclose(
    exact[0]['kernel'], chunked[0]['kernel'], rtol=1e-5
  )
  assert jax.tree.structure(exact) == jax.tree.structure(chunked)
  for name in ('mu', 'nu'):
    a, b = (getattr(x[1], name)['kernel'] for x in (exact, chunked))
    assert a.codes.shape == b.codes.shape == (180, 128)
    assert np.abs(a.codes - b.codes).max() <= 1
    assert (a.codes != b.codes).mean() < 1e-3
    np.testing.assert_allclose(a.absmax_N, b.absmax_N, rtol=1e-6)


@pytest.mark.parametrize('kind', ('bfloat16', 'int8'))
def test_what_a_step_decodes_does_not_grow_with_the_tensor(kind):
  transform = moments.stored(optax.scale_by_adam(), kind)
  temporary = []
  for rows in (2, 8):
    gradient = jnp.zeros((rows, 1024, 512))
    state = jax.eval_shape(transform.init, gradient)
    step = jax.jit(transform.update, donate_argnums=(0, 1))
    compiled = step.lower(gradient, state).compile()
    temporary.append(compiled.memory_analysis().temp_size_in_bytes)
  # A whole tensor more would be 4 bytes for each of 3 million numbers.
  assert temporary[1] - temporary[0] < 1e6
