"""The Newton-Schulz iteration against its equation in float64."""

import jax
import numpy as np

from rnn_jax.ops import newton_schulz
from tests.training.optimizers import test_muon


def test_factors_in_bfloat16_leave_the_iteration_within_hundredths():
  rng = np.random.default_rng(0)
  d = rng.normal(size=(2, 48, 20))
  ours = jax.jit(newton_schulz.orthogonalized, static_argnums=(1, 2, 3))(
    np.float32(d), 3, 'aol', 'bfloat16'
  )
  expected = np.stack([test_muon.orthogonalized(each, 'aol', 3) for each in d])
  error = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
  # Measured: 0.013. A difference of 0 would mean factors in float32.
  assert 1e-3 < error < 0.03


def test_a_matrix_without_a_gradient_stays_zero():
  x = newton_schulz.orthogonalized(np.zeros((4, 3), 'f'), 2, 'aol', 'float32')
  np.testing.assert_array_equal(x, 0)
