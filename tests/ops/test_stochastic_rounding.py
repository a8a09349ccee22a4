"""Rounding at random: to a neighbour, and right on average."""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.ops import stochastic_rounding

round_ = jax.jit(stochastic_rounding.to_bfloat16)


def test_numbers_round_to_a_neighbour_with_the_right_probability():
  fraction = np.float32([0.0, 0.01, 0.25, 0.5, 0.9])
  below, above = np.float32(1.5), np.float32(1.5 + 2**-7)
  count = 40_000
  for factor in np.float32([1, -1, 2.0**-100]):
    x = factor * (below + fraction * (above - below))
    x = np.broadcast_to(x[:, None], (5, count))
    y = np.float32(round_(x, jax.random.key(0)))
    up = y == factor * above
    assert ((y == factor * below) | up).all()
    # Five deviations of the mean of as many draws.
    error = 5 * np.sqrt(fraction * (1 - fraction) / count) + 2**-16
    assert (np.abs(up.mean(1) - fraction) <= error).all()


def test_representable_numbers_do_not_change():
  x = jnp.array([0.0, -0.0, 1.0, -3.5, 1e30, np.inf, -np.inf], jnp.bfloat16)
  y = round_(x.astype(jnp.float32), jax.random.key(1))
  assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_another_key_gives_other_draws():
  x = jnp.full(100, 1 + 2**-8)
  a, b = (np.asarray(round_(x, jax.random.key(n))) for n in (0, 1))
  assert (a != b).any()
