"""Experts against the equations of their docstring, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.inference import layers as layers_lib
from rnn_jax.models import experts as experts_lib
from rnn_jax.models import language_model
from rnn_jax.ops import precision
from tests.support import close
from tests.support import draws

B, L, D, F, E, V = 3, 7, 6, 5, 4, 11
CLOSE = 3e-6  # of the largest number


def build(per_token, normalized=True, shared_width=0, **model):
  options = config_lib.Experts(
    E, per_token, normalized=normalized, shared_width=shared_width
  )
  config = config_lib.Model(width=D, mlp_width=F, experts=options, **model)
  module = experts_lib.Experts(config, precision.POLICIES['float32'])
  return module, draws.parameters(module.init, draws.normal(B, L, D))['params']


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def by_hand(params, x_BxLxD, dy_BxLxD, J, normalized=True):
  """Returns y and the gradients of sum dy y by params and x, of 'swiglu'."""
  params = jax.tree.map(np.float64, params)
  up, gate, down, router = (
    params[name]['kernel'] for name in ('up', 'gate', 'down', 'router')
  )
  x, dy = (np.float64(a).reshape(-1, D) for a in (x_BxLxD, dy_BxLxD))
  y, dx = np.zeros_like(x), np.zeros_like(x)
  slopes = jax.tree.map(np.zeros_like, params)
  for t in range(len(x)):
    p = np.exp(x[t] @ router)
    p /= p.sum()
    chosen = np.argsort(-p)[:J]
    summed = J > 1 and normalized
    total = p[chosen].sum() if summed else 1.0
    dp, dg = np.zeros(E), np.zeros(J)
    for j, e in enumerate(chosen):
      a, b = x[t] @ gate[e], x[t] @ up[e]
      s = sigmoid(a)
      h = a * s * b
      g = p[e] / total
      y[t] += g * (h @ down[e])
      dg[j] = dy[t] @ (h @ down[e])
      dh = down[e] @ (g * dy[t])
      da, db = dh * b * (s + a * s * (1 - s)), dh * a * s
      slopes['down']['kernel'][e] += np.outer(h, g * dy[t])
      slopes['gate']['kernel'][e] += np.outer(x[t], da)
      slopes['up']['kernel'][e] += np.outer(x[t], db)
      dx[t] += gate[e] @ da + up[e] @ db
    # g_j = p_j / total: its gradient by p.
    dp[chosen] = dg / total
    if summed:
      dp[chosen] -= (dg @ p[chosen]) / total**2
    dlogits = p * (dp - dp @ p)
    slopes['router']['kernel'] += np.outer(x[t], dlogits)
    dx[t] += router @ dlogits
    if 'shared' in params:
      y[t] += shared_by_hand(params, slopes, x[t], dy[t], dx[t])
  return y.reshape(B, L, D), (slopes, dx.reshape(B, L, D))


def shared_by_hand(params, slopes, x, dy, dx):
  """Returns the shared expert's output for a token, and adds its gradients."""
  own = {name: params['shared'][name]['kernel'] for name in params['shared']}
  w = params['shared_gate']['kernel'][:, 0]
  a, b, g = x @ own['gate'], x @ own['up'], sigmoid(x @ w)
  s = sigmoid(a)
  h = a * s * b
  dh, dz = own['down'] @ (g * dy), dy @ (h @ own['down']) * g * (1 - g)
  da, db = dh * b * (s + a * s * (1 - s)), dh * a * s
  slopes['shared']['down']['kernel'] += np.outer(h, g * dy)
  slopes['shared']['gate']['kernel'] += np.outer(x, da)
  slopes['shared']['up']['kernel'] += np.outer(x, db)
  slopes['shared_gate']['kernel'][:, 0] += dz * x
  dx += own['gate'] @ da + own['up'] @ db + w * dz
  return g * (h @ own['down'])


assert_close = functools.partial(close.check, tolerance=CLOSE)


@pytest.mark.parametrize(
  ('J', 'normalized', 'shared'), ((1, True, 0), (2, True, 0), (2, False, 7))
)
def test_a_token_runs_the_experts_of_its_largest_probabilities(
  J, normalized, shared
):
  module, params = build(J, normalized, shared)
  x, dy = draws.normal(B, L, D, seed=1), draws.normal(B, L, D, seed=2)

  @jax.jit
  def run(params, x, dy):
    y, transpose = jax.vjp(
      lambda params, x: module.apply({'params': params}, x), params, x
    )
    return y, transpose(dy)

  assert_close(run(params, x, dy), by_hand(params, x, dy, J, normalized))


def test_with_equal_experts_and_gates_of_sum_one_it_is_the_mlp():
  module, params = build(2, mlp='gelu')
  same = jax.tree.map(
    lambda a: jnp.broadcast_to(a[:1], a.shape) if a.ndim == 3 else a, params
  )
  x = draws.normal(B, L, D, seed=1)
  got = jax.jit(module.apply)({'params': same}, x)
  units = jax.nn.gelu(x @ same['up']['kernel'][0], approximate=False)
  assert_close(got, np.asarray(units @ same['down']['kernel'][0]))


WEIGHTS = np.zeros((B, L), np.float32)
WEIGHTS[0, :5], WEIGHTS[1, 2:4] = 1, 2  # rows of 5, 4 and no real steps


def load_by_hand(p_RxBxLxE, chosen_RxBxLxJ):
  """Returns (balance, busiest, idle), weighted sums over rows."""
  R, J, sums = len(p_RxBxLxE), chosen_RxBxLxJ.shape[-1], np.zeros(3)
  for b, real in enumerate((5, 4, 0)):
    weight = WEIGHTS[b].sum()
    for r in range(R):
      chosen = chosen_RxBxLxJ[r, b, :real].reshape(-1)
      if not real:
        continue
      f = np.bincount(chosen, minlength=E) / (real * J)
      mean = np.float64(p_RxBxLxE[r, b, :real]).mean(0)
      own = E * (f @ mean), E * f.max(), np.mean(f == 0)
      sums += weight * np.array(own) / R
  return sums


def routes(R=2, J=2):
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(R, B, L, E)).astype(np.float32)
  chosen = np.argsort(-logits, -1)[..., :J].astype(np.int32)
  return logits, chosen


def test_the_balance_is_that_of_the_real_steps_of_each_row():
  logits, chosen = routes()
  options = config_lib.Experts(E, 2, 0.5)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(logits):
    sown = {
      'blocks': {
        'experts': {'p': (jax.nn.softmax(logits),), 'chosen': (chosen,)}
      }
    }
    given = {'objective': jnp.float32(3), 'weight': jnp.sum(WEIGHTS)}
    sums = experts_lib.with_load(given, sown, WEIGHTS, WEIGHTS, options)
    return sums['objective'], sums

  (objective, sums), slopes = run(logits)
  p = np.exp(np.float64(logits))
  p /= p.sum(-1, keepdims=True)
  want = load_by_hand(p, chosen)
  got = [sums[name] for name in experts_lib.METRICS]
  np.testing.assert_allclose(got, want, rtol=1e-6)
  R = len(logits)
  np.testing.assert_allclose(objective, 3 + 0.5 * R * want[0], rtol=1e-6)
  # The shares f have no gradient; that of p is linear in them.
  slope = np.zeros_like(p)
  for b, real in enumerate((5, 4, 0)):
    for r in range(R):
      if not real:
        continue
      f = np.bincount(chosen[r, b, :real].reshape(-1), minlength=E) / (2 * real)
      dp = 0.5 * WEIGHTS[b].sum() * E * f / real
      own = p[r, b, :real]
      slope[r, b, :real] = own * (dp - (own @ dp)[:, None])
  np.testing.assert_allclose(slopes, slope, rtol=0, atol=1e-6)


def model(experts=None, depth=4, **remat):
  raw = config_lib.default('gru')
  raw.data.length = L
  raw.model.update(width=D, mlp_width=F, layers=depth)
  raw.model.experts.update(count=E, **experts or {})
  raw.remat.update(remat)
  made = language_model.from_config(config_lib.parse(raw), V)
  tokens = np.random.default_rng(0).integers(V, size=(B, L))
  return made, tokens


def test_a_text_is_read_as_it_is_written():
  made, tokens = model()
  state = made.bind({}).init_state(B)
  variables = draws.parameters(made.init, state, tokens[:, :2])
  _, whole = jax.jit(made.apply)(variables, state, tokens)
  step = jax.jit(made.apply)
  for t in range(L):
    state, logits = step(variables, state, tokens[:, t : t + 1])
    # Measured: 2.6e-6, of numbers up to 3, on a processor with AVX2.
    np.testing.assert_allclose(logits[:, 0], whole[:, t], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_first_layers_may_have_an_mlp():
  made, tokens = model(
    depth=2,
    experts={
      'dense_layers': 1,
      'dense_width': 4,
      'scores': 'sigmoid',
      'correction': True,
      'groups': 2,
      'groups_per_token': 1,
    },
  )
  state = made.bind({}).init_state(B)
  params = draws.parameters(made.init, state, tokens[:, :2])['params']
  first, rest = params['stack']['first'], params['stack']['blocks']
  assert first['mlp']['up']['kernel'].shape == (D, 4) and 'mlp' not in rest
  assert rest['experts']['up']['kernel'].shape == (1, E, D, F)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(params):
    (_, y), sown = experts_lib.apply(made, params, state, tokens)
    given = {'objective': jnp.sum(jnp.cos(y)), 'weight': jnp.float32(1)}
    ones = jnp.ones((B, L))
    sums = experts_lib.with_load(given, sown, ones, ones, made.config.experts)
    return sums['objective'], (y, sums)

  (_, (y, sums)), slopes = run(params)
  # Near 1, since it is of probabilities that sum to 1.
  assert 0.8 < sums['balance'] / (B * L) < 1.3
  own = slopes['stack']['blocks']['experts']
  assert not own['router_bias'].any() and own['router']['kernel'].all()
  single = layers_lib.for_inference(made)
  begin = single.apply({}, B, method='init_state')
  apart = {'params': layers_lib.unstack(params)}
  _, got = jax.jit(single.apply)(apart, begin, tokens)
  assert_close(got, y)


def loads(params, **remat):
  """((the objective, sums), gradients) of a model."""
  made, tokens = model(**remat)
  state = made.bind({}).init_state(B)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(params):
    (_, x), sown = experts_lib.apply(
      made, params, state, tokens, method='features'
    )
    given = {'objective': jnp.sum(jnp.cos(x)), 'weight': jnp.float32(1)}
    weights = jnp.ones((B, L))
    sums = experts_lib.with_load(
      given, sown, weights, weights, made.config.experts
    )
    return sums['objective'], sums

  return run(params)


@pytest.mark.slow
def test_groups_of_layers_route_alike():
  made, tokens = model()
  state = made.bind({}).init_state(B)
  params = draws.parameters(made.init, state, tokens[:, :2])['params']
  assert_close(loads(params, layers=1, stored_layers=1), loads(params))
