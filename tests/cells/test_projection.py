"""A projection whose wide parts are matmuls of their own, as on a GPU."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.cells.parts import matrix
from rnn_jax.system import target

# One has narrow parts between wide ones, one only wide ones.
CASES = (
  ('gated_deltanet', {'heads': 3, 'key_width': 8, 'value_width': 16}),
  ('gla', {'heads': 2, 'key_width': 8, 'rank': 8, 'shared_gate': True}),
)


@pytest.mark.parametrize(('name', 'options'), CASES)
def test_parts_equal_those_of_one_matmul(name, options, monkeypatch):
  module = importlib.import_module(f'rnn_jax.cells.{name}')
  cell = module.Cell(module.Config(**options), 12)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 12)), 'float32')
  variables = cell.init(jax.random.key(0), x, method='project')
  products = []

  def count(*arrays, **named):
    products.append(arrays[1].shape[-1])
    return dot_general(*arrays, **named)

  policy = type(cell.policy)
  dot_general = cell.policy.dot_general
  monkeypatch.setattr(policy, 'dot_general', lambda _, *a, **o: count(*a, **o))

  def passes():
    products.clear()

    def project(variables):
      return cell.apply(variables, x, method='project')

    u, back = jax.vjp(project, variables)
    return u, back(u), len(products)

  *want, one = passes()
  monkeypatch.setattr(matrix, 'WIDE', 16)
  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  *got, several = passes()
  assert several > one
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * abs(b).max())
