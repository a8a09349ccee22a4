"""Latent attention against its equations; test_contract tests the rest."""

import jax
import numpy as np

from tests.cells import equations
from tests.support import draws

H, K, R, P, C = 2, 3, 4, 5, 6
SIZES = {
  'heads': H,
  'key_width': K,
  'shared_width': R,
  'value_width': P,
  'kv_rank': C,
}
WINDOW, BASE = 4, 100.0


def rms_norm(x, scale):
  return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def rotated(x, t):
  """Pairs of the R channels, as complex numbers."""
  pairs = (x[: R // 2] + 1j * x[R // 2 :]) * np.exp(
    1j * t * BASE ** (-2 * np.arange(R // 2) / R)
  )
  return np.concatenate([pairs.real, pairs.imag])


def by_hand(params, x):
  """The docstring of cells/latent_attention.py, head by head."""
  queries = (x @ params['query']['kernel']).reshape(len(x), H, R + K)
  both = x @ params['latent']['kernel']
  c = rms_norm(both[:, :C], params['latent_norm']['scale'])
  expand = params['expand']['kernel'].reshape(C, H, K + P)
  out = np.zeros((len(x), H, P))
  for t, h in np.ndindex(len(x), H):
    seen = [*range(max(0, t - WINDOW), t + 1)]
    q, scores = queries[t, h], []
    for s in seen:
      shared = rotated(q[:R], t) @ rotated(both[s, C:], s)
      scores.append(shared + q[R:] @ (c[s] @ expand[:, h, :K]))
    weights = np.exp(np.array(scores) / np.sqrt(R + K))
    out[t, h] = weights / weights.sum() @ (c[seen] @ expand[:, h, K:])
  return out.reshape(len(x), -1) @ params['output']['kernel']


def test_it_equals_its_equations_in_rows_and_in_steps():
  cell = equations.made('latent_attention', window=WINDOW, rotary=BASE, **SIZES)
  B, L = 2, 7
  x, state = draws.normal(B, L, equations.D), cell.init_state(B)
  assert [leaf.shape[1:] for leaf in state] == [(4, 1, R), (4, 1, C), ()]
  variables = draws.parameters(cell.init, state, x)

  @jax.jit
  def run(x):
    def step(state, x):
      state, y = cell.apply(variables, state, x[:, None])
      return state, y[:, 0]

    _, steps = jax.lax.scan(step, state, x.swapaxes(0, 1))
    return cell.apply(variables, state, x)[1], steps.swapaxes(0, 1)

  params = jax.tree.map(np.float64, variables['params'])
  want = np.stack([by_hand(params, row) for row in np.float64(x)])
  for got in run(x):
    atol = equations.CLOSE * abs(want).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def test_a_row_initializes_what_a_step_does():
  made = equations.initial('latent_attention', window=WINDOW, **SIZES)
  x, cell = (
    draws.normal(2, 1, equations.D),
    equations.made('latent_attention', window=WINDOW, **SIZES),
  )
  step = jax.eval_shape(cell.init, jax.random.key(0), cell.init_state(2), x)
  assert jax.tree.map(jax.numpy.shape, made) == jax.tree.map(
    jax.numpy.shape, step['params']
  )
  assert made['expand']['kernel'].any()


def test_it_has_as_many_parameters_as_documented():
  D = equations.D
  direct = D * H * (R + K)
  rest = D * (C + R) + C + C * H * (K + P) + D * H * P
  sizes = SIZES | {'window': WINDOW}
  assert equations.count('latent_attention', **sizes) == direct + rest
  low = D * 2 + 2 + 2 * H * (R + K)
  biases = 2 + C + R + D
  assert equations.count(
    'latent_attention', query_rank=2, biases=True, **sizes
  ) == (low + rest + biases)
