"""Cells with a matrix state against their equations, in float64."""

import re

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


@pytest.mark.parametrize(
  ('by_hand', 'options'),
  (
    (gla, {'rank': R}),
    (hgrn2, {'lower_bound': 0.1}),
    (retnet, {'key_width': 4}),
    (mamba2, {'heads': 4, 'groups': 2, 'convolution': 3}),
  ),
)
def test_a_cell_equals_its_equations(by_hand, options):
  equations.compare(by_hand.__name__, SMALL | options, by_hand)


@pytest.mark.parametrize('name', ('gla', 'mamba2', 'gated_deltanet', 'rwkv7'))
def test_gates_at_their_ends_stay_finite(name):
  """Inputs so large that gates are 0 or 1 to the last bit."""
  module = config_lib.load('cells', name, 'model.cell')
  plan = base.Plan(chunk_length=4)
  cell = module.Cell(module.Config(**SMALL), D, plan)
  x = draws.normal(2, 9, D)
  variables = draws.parameters(cell.init, cell.init_state(2), x)

  @jax.jit
  def both_ways(variables, x):
    out, back = jax.vjp(cell.apply, variables, cell.init_state(2), x)
    return out, back(jax.tree.map(jnp.ones_like, out))

  for leaf in jax.tree.leaves(both_ways(variables, 1e4 * x)):
    assert np.isfinite(leaf).all()


@pytest.mark.parametrize(
  ('cell', 'section', 'key', 'value', 'message'),
  (
    ('gla', 'cell', 'rank', 0, 'cell.rank=0: give 1 or more'),
    ('gla', 'cell', 'temperature', 0.0, 'give a number above 0'),
    ('gla', 'cell', 'heads', 0, 'cell.heads=0: give 1 or more'),
    ('gla', 'recurrence', 'chunk_length', 40, "or use recurrence.impl='scan'"),
    ('hgrn2', 'cell', 'lower_bound', 1.0, r'give a number in \[0, 1\)'),
    ('retnet', 'cell', 'key_width', 3, 'rotary positions need an even number'),
    ('retnet', 'cell', 'rotary', 1.0, 'give a number above 1'),
    ('mamba2', 'cell', 'groups', 3, 'it must divide cell.heads=4'),
    ('mamba2', 'mesh', 'tensor', 2, 'mesh.tensor=2 must divide it'),
    ('mamba2', 'cell', 'convolution', 0, 'give 1 tap or more'),
  ),
)
def test_bad_options_are_refused_by_name(cell, section, key, value, message):
  refusal = equations.refusal(cell, section, key, value)
  assert re.search(message, refusal), refusal


def test_documented_sizes():
  """docs/cells.md: parameters of the projections and numbers of the state."""
  sizes = {
    'gla': H * (2 * K + 2 * P + R) * D + H * P * D + H * (R + 1) * K,
    'hgrn2': H * (2 * K + P) * D + H * P * D,
  }
  options = {'gla': {'rank': R}}
  for name, size in sizes.items():
    assert equations.count(name, **SMALL, **options.get(name, {})) == size
