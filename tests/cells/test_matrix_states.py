"""Cells with a matrix state against their equations, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from tests.cells import equations
from tests.support import draws

D = equations.D
sigmoid = equations.sigmoid
H, K, P, R = 2, 3, 4, 2
SMALL = {'heads': H, 'key_width': K, 'value_width': P}
MAMBA = {'inner_width': P, 'key_width': K, 'rank': R, 'convolution': 3}


def silu(x):
  return x * sigmoid(x)


def softplus(x):
  return np.logaddexp(x, 0)


def rms_norm(x):
  return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def project(params, x, *widths, units=H):
  """The parts of each unit's projection, LxHx_."""
  u = (x @ params['projection']['kernel']).reshape(len(x), units, -1)
  return np.split(u, np.cumsum(widths)[:-1], -1)


def convolve(x, taps):
  """A causal convolution of LxHxE; the first tap is of the newest input."""
  taps = taps.reshape(-1, *x.shape[1:])
  out = np.zeros_like(x)
  for t in range(len(x)):
    for d, tap in enumerate(taps[: t + 1]):
      out[t] += tap * x[t - d]
  return out


def remember(q, k, v, a):
  """What the memory of each head says, LxHxP; a is LxHxK or LxHx1."""
  state = np.zeros((*k.shape[1:], v.shape[-1]))
  out = []
  for t in range(len(q)):
    state = a[t][..., None] * state
    state = state + k[t][..., None] * v[t][:, None]
    out.append(np.einsum('hkp,hk->hp', state, q[t]))
  return np.stack(out)


def joined(x):
  return x.reshape(len(x), -1)


def gla(params, x):
  q, k, v, gate, raw = project(params, x, K, K, P, P, R)
  raw = np.einsum('lhr,hrk->lhk', raw, params['gate_up'])
  a = sigmoid(raw + params['gate_bias']) ** (1 / 16)
  o = remember(q * K**-0.5, k, v, a)
  return joined(rms_norm(o) * silu(gate)), {'keep': a}


def gla_as_published(params, x):
  q, k, v, gate = project(params, x, K, K, P, P)
  raw = x @ params['gate_down']['kernel']  # of all heads
  raw = np.einsum('lr,hrk->lhk', raw, params['gate_up'])
  a = sigmoid(raw + params['gate_bias']) ** (1 / 8)
  o = rms_norm(remember(q * K**-0.5, k, v, a)) * params['norm']['scale']
  return joined(o * silu(gate)), {'keep': a}


def hgrn2(params, x):
  q, raw, v = project(params, x, K, K, P)
  a = 0.1 + 0.9 * sigmoid(raw)
  return joined(rms_norm(remember(silu(q), 1 - a, v, a))), {'keep': a}


def retnet(params, x):
  q, k, v, gate = project(params, x, 4, 4, P, P)
  turns = np.arange(len(x))[:, None] * 10_000.0 ** -(np.arange(2) / 2)

  def rotary(z):  # halves, as in GPT-NeoX
    first, second = np.split(z, 2, -1)
    cos, sin = np.cos(turns)[:, None], np.sin(turns)[:, None]
    parts = first * cos - second * sin, first * sin + second * cos
    return np.concatenate(parts, -1)

  a = 1 - 2.0 ** (-5 - np.arange(H))
  a = np.broadcast_to(a[:, None], (len(x), H, 1))
  o = remember(rotary(q), rotary(k) * 4**-0.5, v, a)
  return joined(rms_norm(o) * silu(gate)), {'keep': a}


def mamba2(params, x):
  """Two groups of two heads."""
  G, heads = 2, 4
  gate, v, k, q, raw = project(params, x, 2 * P, 2 * P, K, K, 2, units=G)
  mixed = np.concatenate([v, k, q], -1)
  bias = params['taps_bias'].reshape(G, -1)
  mixed = silu(convolve(mixed, params['taps']) + bias)
  v, k, q = np.split(mixed, [2 * P, 2 * P + K], -1)
  v = v.reshape(len(x), heads, P)
  k, q = (np.repeat(z, heads // G, 1) for z in (k, q))
  dt = softplus(raw.reshape(len(x), heads) + params['dt_bias'])[..., None]
  a = np.exp(-dt * np.exp(params['log_rate'])[:, None])
  o = remember(q, k, dt * v, a) + params['skip'][:, None] * v
  return joined(rms_norm(o.reshape(gate.shape) * silu(gate))), {'keep': a}


def mamba(params, x):
  """Of S = 4 channels with K numbers each, R of which make dt."""
  u, gate = np.moveaxis(
    (x @ params['projection']['kernel']).reshape(-1, P, 2), 2, 0
  )
  u = convolve(u[:, None], params['taps'])[:, 0] + params.get('taps_bias', 0)
  u = silu(u)
  r, k, q = np.split(u @ params['selection']['kernel'], [R, R + K], -1)
  dt = softplus(r @ params['dt']['kernel'] + params['dt_bias'])
  a = np.exp(-dt[..., None] * np.exp(params['log_rate']))
  h, out = 0, []
  for t in range(len(x)):
    h = a[t] * h + dt[t][:, None] * u[t][:, None] * k[t]
    out.append(h @ q[t] + params['skip'] * u[t])
  return np.stack(out) * silu(gate), {'keep': a}


def remember_mlstm(params, x, cap=lambda z: z, epsilon=0.0):
  """Published, without a stabilizer: float64 holds exp of these gates.

  Returns h, the output gate, and what the memory keeps.
  """
  q, k, v, out, i, f = project(params, x, K, K, P, P, 1, 1)
  bias_i, bias_f = params['gate_bias'].T[:, :, None]
  i, f = cap(i + bias_i), sigmoid(cap(f + bias_f))
  k = np.exp(i) * k * K**-0.5
  m, floor, maxima = np.zeros(H), [], []
  for i_t, f_t in zip(i[..., 0], f[..., 0], strict=True):
    m, before = np.maximum(np.maximum(m + np.log(f_t), i_t), 0), m
    floor.append((f_t * np.exp(before - m))[:, None])
    maxima.append(m[:, None])
  n = remember(q, k, np.ones_like(v[..., :1]), f)
  weight = np.maximum(abs(n), 1) + epsilon * np.exp(maxima)
  return remember(q, k, v, f) / weight, sigmoid(out), {'keep': floor}


def mlstm(params, x):
  h, out, gates = remember_mlstm(params, x)
  return joined(rms_norm(h) * out), gates


def mlstm_as_published(params, x):
  h, out, gates = remember_mlstm(params, x, lambda z: 2 * np.tanh(z / 2), 0.1)
  h = rms_norm(h - h.mean(-1, keepdims=True)) * params['norm']['scale']
  return joined(h * out), gates


def rg_lru(params, x, whole_start=False):
  both = x @ params['projection']['kernel'] + params['projection']['bias']
  u, gate = np.split(both.reshape(len(x), H, -1), 2, -1)
  u = convolve(u, params['taps']) + params['taps_bias'].reshape(H, -1)
  raw = np.einsum('lhp,hpq->lhq', u, params['gate']['kernel'])
  r, i = np.split(sigmoid(raw + params['gate']['bias']), 2, -1)
  rate = 8 * softplus(params['decay']).reshape(H, -1)
  a, h, out = np.exp(-rate * r), 0, []
  for t, (a_t, i_t, u_t) in enumerate(zip(a, i, u, strict=True)):
    share = 1 if whole_start and not t else np.sqrt(1 - a_t**2)
    h = a_t * h + share * i_t * u_t
    out.append(h)
  tanh = np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3))
  y = np.stack(out) * 0.5 * gate * (1 + tanh)
  return joined(y), {'keep': joined(a), 'write': joined(i)}


@pytest.mark.parametrize(
  ('by_hand', 'options'),
  (
    (gla, {'rank': R}),
    (
      gla_as_published,
      {'rank': R, 'shared_gate': True, 'temperature': 8.0, 'norm_scale': True},
    ),
    (hgrn2, {'lower_bound': 0.1}),
    (retnet, {'key_width': 4}),
    (mamba2, {'heads': 4, 'groups': 2, 'convolution': 3}),
    (mlstm, {}),
    (
      mlstm_as_published,
      {'gate_cap': 2.0, 'normalizer_epsilon': 0.1}
      | {'norm': 'layer', 'norm_scale': True},
    ),
  ),
)
def test_a_cell_equals_its_equations(by_hand, options):
  name = by_hand.__name__.removesuffix('_as_published')
  equations.compare(name, SMALL | options, by_hand)


@pytest.mark.parametrize('whole_start', (False, True))
def test_rg_lru_equals_its_equations(whole_start):
  options = {'heads': H, 'head_width': P, 'convolution': 3}
  by_hand = functools.partial(rg_lru, whole_start=whole_start)
  equations.compare('rg_lru', options | {'whole_start': whole_start}, by_hand)


@pytest.mark.parametrize('biased', (True, False))
def test_mamba_equals_its_equations(biased):
  options = MAMBA | {'convolution_bias': biased}
  equations.compare('mamba', options, mamba)


def test_mamba_starts_as_published():
  params = equations.initial('mamba', key_width=3)
  np.testing.assert_allclose(params['log_rate'], np.log([[1, 2, 3]] * 2 * D))
  dt = softplus(np.float64(params['dt_bias']))
  assert dt.min() >= 0.99e-3 and dt.max() <= 0.101
  assert params['selection']['kernel'].shape == (2 * D, 1 + 2 * 3)
  assert abs(params['dt']['kernel']).max() <= 1


@pytest.mark.parametrize(
  'name',
  ('gla', 'mamba', 'mamba2', 'mlstm', 'rg_lru', 'gated_deltanet', 'rwkv7'),
)
def test_gates_at_their_ends_stay_finite(name):
  """Inputs so large that gates are 0 or 1 to the last bit."""
  module = config_lib.load('cells', name, 'model.cell')
  plan = base.Plan(chunk_length=4)
  own = {'rg_lru': {'heads': H, 'head_width': P}, 'mamba': MAMBA}
  options = own.get(name, SMALL)
  cell = module.Cell(module.Config(**options), D, plan)
  x = draws.normal(2, 9, D)
  variables = draws.parameters(cell.init, cell.init_state(2), x)

  @jax.jit
  def both_ways(variables, x):
    out, back = jax.vjp(cell.apply, variables, cell.init_state(2), x)
    return out, back(jax.tree.map(jnp.ones_like, out))

  for leaf in jax.tree.leaves(both_ways(variables, 1e4 * x)):
    assert np.isfinite(leaf).all()


@pytest.mark.parametrize('impl', ('chunked', 'native'))
def test_mlstm_s_forms_equal_its_steps_for_any_gate(impl):
  """Input gates from exp(-300) to exp(300), which float32 can't hold."""
  module = config_lib.load('cells', 'mlstm', 'model.cell')
  cell = module.Cell(module.Config(**SMALL), D, base.Plan(impl, 4))
  state, x = cell.init_state(2), 100 * draws.normal(2, 9, D)
  variables = draws.parameters(cell.init, state, x)
  raw = np.asarray(cell.apply(variables, x, method='project'))[..., -2]
  assert raw.min() < -90 and raw.max() > 90
  steps = cell.clone(plan=base.Plan('scan'))
  got, want = (jax.jit(c.apply)(variables, state, x)[1] for c in (cell, steps))
  # Measured: 2e-5; m, about 300, is rounded to 3e-5.
  np.testing.assert_allclose(got, want, atol=1e-4 * abs(want).max())


def test_they_have_as_many_parameters_as_documented():
  attention = H * (2 * K + 3 * P) * D
  for name, options, size in (
    ('gla', {'rank': R}, attention + H * R * D + H * (R + 1) * K),
    (
      'gla',
      {'rank': R, 'shared_gate': True},
      attention + R * D + H * (R + 1) * K,
    ),
    ('hgrn2', {}, H * (2 * K + 2 * P) * D),
    ('mlstm', {}, attention + 2 * H * D + 2 * H),
  ):
    assert equations.count(name, **SMALL, **options) == size
  assert equations.count('retnet', **SMALL | {'key_width': 4}) == (
    H * (8 + 3 * P) * D
  )
  E = H * P + 2 * K  # of one group; beside it, three numbers of each head
  assert equations.count('mamba2', **SMALL, convolution=3) == (
    H * (3 * P + 1) * D + 2 * K * D + 4 * E + 3 * H
  )
  assert equations.count('mamba', **MAMBA) == (
    3 * D * P + P * (R + 2 * K) + R * P + P * (3 + K + 3)
  )
  S = H * P
  assert equations.count('rg_lru', heads=H, head_width=P, convolution=3) == (
    3 * D * S + 2 * P * S + (3 + 6) * S + D
  )
