"""Routed functions against sums over rows, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.ops import routed
from tests.support import draws

pytestmark = pytest.mark.slow

T, J, E, D, P = 19, 2, 5, 3, 4
CLOSE = 2e-6  # of the largest number
IDLE = 3


def function(params, x_CxD):
  return jnp.square(x_CxD @ params['w']) + params['b'][None]


def choices():
  """Different functions in each row: one is idle, some are elsewhere."""
  rng = np.random.default_rng(0)
  able = [e for e in range(E) if e != IDLE]
  chosen = np.stack([rng.permutation(able)[:J] for _ in range(T)])
  chosen[2, 0], chosen[7, 1], chosen[11] = -1, E, (E, E + 7)
  return chosen.astype(np.int32)


def arguments():
  params = {'w': draws.normal(E, D, P), 'b': draws.normal(E, P, seed=1)}
  gate = draws.normal(T, J, seed=3)
  return params, draws.normal(T, D, seed=2), choices(), gate


def by_hand(params, x, chosen, gate, dy):
  """y and the gradients of sum dy y, from the docstring's equation."""
  params, x, gate, dy = jax.tree.map(np.float64, (params, x, gate, dy))
  y, dx, dgate = np.zeros((T, P)), np.zeros_like(x), np.zeros_like(gate)
  dparams = jax.tree.map(np.zeros_like, params)
  for t in range(T):
    for j, e in enumerate(chosen[t]):
      if not 0 <= e < E:
        continue
      u = x[t] @ params['w'][e]
      one = u**2 + params['b'][e]
      y[t] += gate[t, j] * one
      dgate[t, j] = dy[t] @ one
      du = 2 * u * gate[t, j] * dy[t]
      dx[t] += params['w'][e] @ du
      dparams['w'][e] += np.outer(x[t], du)
      dparams['b'][e] += gate[t, j] * dy[t]
  return y, (dparams, dx, dgate)


@functools.partial(jax.jit, static_argnums=5)
def run(params, x, chosen, gate, dy, size):
  del size  # compiled again for each

  def apply(params, x, gate):
    return routed.apply(function, params, x, chosen, gate)

  y, transpose = jax.vjp(apply, params, x, gate)
  return y, transpose(dy)


@pytest.mark.parametrize('size', (4, 128))  # several blocks of a function, one
def test_each_row_is_the_sum_of_its_functions(monkeypatch, size):
  monkeypatch.setattr(routed, 'BLOCK', size)
  args, dy = arguments(), draws.normal(T, P, seed=4)
  got, want = run(*args, dy, size), by_hand(*args, dy)
  for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE * abs(b).max())
  (dparams, _, _) = got[1]
  assert not any(dparams[name][IDLE].any() for name in dparams)


def test_all_rows_may_choose_one_function():
  params, x, _, gate = arguments()
  chosen = np.full((T, 1), 1, np.int32)
  dy = draws.normal(T, P, seed=4)
  y, _ = run(params, x, chosen, gate[:, :1], dy, 0)
  want, _ = by_hand(params, x, chosen, gate[:, :1], dy)
  np.testing.assert_allclose(y, want, rtol=0, atol=CLOSE * abs(want).max())


def test_the_work_is_that_of_the_rows_there_are():
  """A block runs for each started one: counted on the host."""
  params, x, chosen, gate = arguments()
  seen = []

  def counted(params, x):
    jax.debug.callback(lambda: seen.append(1))
    return function(params, x)

  chosen = np.where(chosen == 0, 0, E)  # one function has rows here
  jax.block_until_ready(
    jax.jit(lambda *args: routed.apply(counted, *args))(params, x, chosen, gate)
  )
  jax.effects_barrier()
  assert len(seen) == 1
