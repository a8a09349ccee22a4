"""Kronecker factors and their inverses against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import kronecker

pytestmark = pytest.mark.slow

ROWS, D, H, V = 7, 4, 6, 5
PADDING = 2  # of the rows, at the end


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def spread(n, seed=0):
  """A sum of outer products with eigenvalues of several sizes."""
  x = draw(3 * n, n, seed=seed) * np.logspace(0, -1.5, n)
  return x.T @ x


@pytest.mark.parametrize('whole', (True, False))
def test_factors_of_a_network_are_sums_over_rows_without_padding(whole):
  x, v, w = draw(ROWS, D), draw(D, H, seed=1), draw(H, V, seed=2)
  labels = np.arange(ROWS) % V
  weights = np.arange(ROWS) < ROWS - PADDING

  def loss(params, blank):
    h = jnp.tanh(kronecker.tagged(x32 @ params[0], x32, *blank[0]))
    y = kronecker.tagged(h @ params[1], h, *blank[1])
    log_probability = jax.nn.log_softmax(y)[jnp.arange(ROWS), labels]
    return -jnp.sum(weights * log_probability)

  x32, params = np.float32(x), (np.float32(v), np.float32(w))
  sides = ((D, H), (H, V))
  blank = [[jnp.ones((n, n) if whole else n) for n in layer] for layer in sides]
  gradients, factors = jax.jit(jax.grad(loss, (0, 1)))(params, blank)

  h = np.tanh(x @ v)
  odds = np.exp(h @ w)
  dy = odds / odds.sum(1, keepdims=True) - np.eye(V)[labels]
  dy *= weights[:, None]
  dh = dy @ w.T * (1 - h**2)
  for n, (read, back) in enumerate(((x, dh), (h, dy))):
    # Measured: 3e-7.
    close(gradients[n], read.T @ back)
    for sums, rows in zip(factors[n], (read[weights], back), strict=True):
      expected = rows.T @ rows
      close(sums, expected if whole else np.diag(expected))
      assert sums.dtype == jnp.float32


def close(got, expected, tolerance=3e-6):
  np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_their_product_is_the_fisher_matrix_of_independent_rows():
  """Each input meets each output gradient."""
  some, others = draw(6, 3), draw(5, 2, seed=1)
  x, dy = np.repeat(some, 5, 0), np.tile(others, (6, 1))

  def loss(blank):
    y = jnp.zeros(dy.shape)
    return jnp.sum(kronecker.tagged(y, jnp.float32(x), *blank) * dy)

  blank = jnp.zeros((3, 3)), jnp.zeros((2, 2))
  a, g = jax.grad(loss)(blank)
  rows = [np.kron(*pair) for pair in zip(x, dy, strict=True)]
  fisher = np.mean([np.outer(row, row) for row in rows], 0)
  close(np.kron(a, g) / len(rows) ** 2, fisher)


@pytest.mark.parametrize('sides', ((5, 3), (5, -3), (-5, 3), (-5, -3)))
def test_directions_solve_the_published_damped_system(sides):
  """Negative sides have only a diagonal."""
  rows, columns = map(abs, sides)
  a, g = spread(rows), 1e-4 * spread(columns, seed=1)
  gradient, damping = draw(rows, columns, seed=2), 1e-3
  given = [
    np.float32(np.diag(x) if n < 0 else x)
    for x, n in zip((a, g), sides, strict=True)
  ]

  @jax.jit
  def run(gradient, *factors):
    inverses = (kronecker.inverse(factor, damping) for factor in factors)
    return kronecker.precondition(gradient, *inverses)

  direction = run(np.float32(gradient), *given)
  a, g = (
    np.diag(np.diag(x)) if n < 0 else x
    for x, n in zip((a, g), sides, strict=True)
  )
  means = np.trace(a) / rows, np.trace(g) / columns
  product_damping = damping * means[0] * means[1]
  balance = np.sqrt(means[0] / means[1])
  system = np.kron(
    a + balance * np.sqrt(product_damping) * np.eye(rows),
    g + np.sqrt(product_damping) / balance * np.eye(columns),
  )
  expected = np.linalg.solve(system, gradient.ravel()).reshape(rows, columns)
  # Measured: 5e-6.
  close(direction, means[0] * means[1] * expected, 3e-5)


@pytest.mark.parametrize('scale', (0.0, 1e-12, 1.0))
def test_a_factor_of_one_direction_has_an_inverse(scale):
  """Of the least damping that a config can have; without rows too."""
  n, least = 512, 1e-5
  x = np.ones((1, n), np.float32)
  inverse = np.array(kronecker.inverse(jnp.array(scale * x.T @ x), least))
  assert np.isfinite(inverse).all()
  across = np.eye(n)[0] - np.eye(n)[1]
  # Measured: 2e-3: as 1e-7 of the largest eigenvalue is beside the damping.
  np.testing.assert_allclose(inverse @ across, across / least**0.5, 0.01, 1.0)
