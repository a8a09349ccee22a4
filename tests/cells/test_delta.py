"""The cells of the delta rule against their equations."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from tests.cells import equations

H, K, P, RANK = 2, 3, 4, 2
SIZES = {'heads': H, 'key_width': K, 'value_width': P}
OWN = {  # what a cell's projection has after q, k, v and beta
  'deltanet': {},
  'gated_deltanet': {'a': 1, 'g': P},
  'kda': {'a': RANK, 'g': RANK},
}


def silu(x):
  return x * equations.sigmoid(x)


def softplus(x):
  return np.log1p(np.exp(x))


def unit(x):
  return x / np.sqrt((x * x).sum() + 1e-6)


def rms_norm(x):
  return x / np.sqrt((x * x).mean() + 1e-6)


def convolved(x_LxE, taps):
  """Each channel's sum over its last inputs."""
  out = np.zeros_like(x_LxE)
  for t in range(len(x_LxE)):
    for d in range(min(len(taps), t + 1)):
      out[t] += taps[d] * x_LxE[t - d]
  return out


def decay(name, params, h, raw):
  if name == 'deltanet':
    return np.ones(1)
  if name == 'kda':
    raw = raw @ params['decay_up'][h]
  rate = np.exp(params['log_rate'][h])
  return np.exp(-rate * softplus(raw + params['step_bias'][h]))


def gated(name, params, h, o, raw):
  if name == 'deltanet':
    return rms_norm(o)
  if name == 'gated_deltanet':
    return rms_norm(o) * silu(raw)
  raw = raw @ params['output_gate_up'][h] + params['output_gate_bias'][h]
  return rms_norm(o) * equations.sigmoid(raw)


def by_hand(name, max_beta, params, x, each=1):
  """The docstrings of parts/delta.py and of the cell, head by head.

  `each` is how many heads of values share a key.
  """
  sizes = {'q': K, 'k': K, 'v': P, 'beta': 1} | OWN[name]
  columns = {n: s if n in 'qk' else each * s for n, s in sizes.items()}
  ends = np.cumsum([*columns.values()])[:-1]
  by_heads = (x @ params['projection']['kernel']).reshape(len(x), H, -1)
  first = 2 * K + each * P
  mixed = by_heads[:, :, :first].reshape(len(x), -1)
  if 'taps' in params:
    mixed = convolved(mixed, params['taps'])
  by_heads[:, :, :first] = silu(mixed).reshape(len(x), H, -1)
  out = np.zeros((len(x), each * H, P))
  gates = {'keep': [], 'write': []}
  S = np.zeros((each * H, K, P))
  for t in range(len(x)):
    keep, write = [], []
    for h in range(each * H):
      parts = np.split(by_heads[t, h // each], ends)
      read = dict(zip(sizes, parts, strict=True))
      for own in {*read} - {'q', 'k'}:
        read[own] = np.split(read[own], each)[h % each]
      q, k = unit(read['q']) / np.sqrt(K), unit(read['k'])
      rate = equations.sigmoid(read['beta'])
      a = decay(name, params, h, read.get('a'))
      decayed = np.diag(np.broadcast_to(a, K)) @ S[h]
      erased = np.eye(K) - max_beta * rate * np.outer(k, k)
      S[h] = erased @ decayed + max_beta * rate * np.outer(k, read['v'])
      out[t, h] = gated(name, params, h, S[h].T @ q, read.get('g'))
      keep.append(a)
      write.append(rate)
    gates['keep'].append(keep)
    gates['write'].append(write)
  return out.reshape(len(x), -1), gates


@pytest.mark.parametrize(
  ('name', 'options'),
  (
    ('deltanet', {'convolution': 0, 'max_beta': 2.0}),
    ('deltanet', {'convolution': 3}),
    ('gated_deltanet', {}),
    ('gated_deltanet', {'value_heads': 3 * H, 'max_beta': 2.0}),
    ('kda', {'rank': RANK}),
  ),
)
def test_they_equal_their_equations(name, options):
  equation = functools.partial(
    by_hand,
    name,
    options.get('max_beta', 1.0),
    each=options.get('value_heads', H) // H,
  )
  equations.compare(name, SIZES | options, equation)


def rwkv7_by_hand(params, x):
  """The docstring of cells/rwkv7.py, head by head."""
  before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
  raw = {}
  for n, name in enumerate('rwkvag'):
    shifted = x + (before - x) * params['shift'][n]
    columns = shifted @ params[f'projections_{name}']['kernel']
    raw[name] = columns.reshape(len(x), H, -1)
  S, out = np.zeros((H, K, P)), np.zeros((len(x), H, P))
  gates = {'keep': np.zeros((len(x), H, K)), 'write': np.zeros((len(x), H, K))}
  for t, h in np.ndindex(len(x), H):
    r, w, k, v, a, g = (raw[name][t, h] for name in 'rwkvag')
    w = np.tanh(w) @ params['up_w'][h] + params['decay_bias'][h]
    w = np.exp(-np.exp(-0.5) * equations.sigmoid(w))
    a = equations.sigmoid(a @ params['up_a'][h] + params['rate_bias'][h])
    g = equations.sigmoid(g) @ params['up_g'][h]
    n = unit(k * params['key_scale'][h])
    k = k * (1 + (a - 1) * params['key_rate'][h])
    S[h] = (np.diag(w) - np.outer(a * n, n)) @ S[h] + np.outer(k, v)
    o = S[h].T @ r
    o = (o - o.mean()) / np.sqrt(o.var() + 64e-5)
    o = o * params['norm_scale'][h] + params['norm_bias'][h]
    out[t, h] = (o + (r * params['bonus'][h] * k).sum() * v) * g
    gates['keep'][t, h], gates['write'][t, h] = w, a
  return out.reshape(len(x), -1), {
    name: [*values] for name, values in gates.items()
  }


def test_rwkv7_equals_its_equations():
  options = SIZES | {'rank': RANK}
  equations.compare('rwkv7', options, rwkv7_by_hand)


@pytest.mark.parametrize('name', ['gated_deltanet', 'kda', 'rwkv7'])
def test_rows_of_the_state_begin_by_forgetting_slowly_and_fast(name):
  options = {'heads': 64, 'key_width': 4, 'value_width': 4}
  cell = equations.made(name, **options)
  params = equations.initial(name, **options)
  x = np.zeros((1, 1, equations.D), np.float32)

  @jax.jit
  def gates(params):
    u = cell.apply({'params': params}, x, method='project')
    state, u = cell.init_state(1), jax.tree.map(lambda u: u[:, 0], u)
    return cell.apply({'params': params}, state, u, method='gates')

  keep = np.asarray(gates(params).values['keep'])
  assert keep.min() < 0.75 and keep.max() > 0.99 and keep.min() > 0.1


def test_they_have_as_many_parameters_as_documented():
  D, E = equations.D, H * (2 * K + P)
  projected, output = D * (E + H), H * P * D
  base = projected + 4 * E + output
  assert equations.count('deltanet', **SIZES) == base
  gated = base + D * H * (P + 1) + 2 * H
  assert equations.count('gated_deltanet', **SIZES) == gated
  added = D * H * (2 * P + 2) + 4 * H * P + H * P * D + 2 * H
  assert equations.count('gated_deltanet', value_heads=2 * H, **SIZES) == (
    gated + added
  )
  ranks = D * 2 * H * RANK + H * RANK * (K + P) + H * (1 + K + P)
  assert equations.count('kda', rank=RANK, **SIZES) == base + ranks
  shared = {'shared_gate': True, 'output_gate_bias': False}
  ranks -= D * 2 * (H - 1) * RANK + H * P
  assert equations.count('kda', rank=RANK, **shared, **SIZES) == base + ranks
  own = 6 * D + D * 3 * H * RANK + H * RANK * (2 * K + P) + H * (5 * K + 2 * P)
  assert equations.count('rwkv7', rank=RANK, **SIZES) == (D * E + own + output)


def test_heads_on_several_devices_share_no_scale():
  raw = config_lib.default('gated_deltanet')
  raw.cell.norm_scale, raw.mesh.tensor = True, 2
  with pytest.raises(errors.InputError, match='mesh.tensor=2 devices share'):
    config_lib.parse(raw)


def test_rwkv7_stores_inputs_of_one_width():
  raw = config_lib.default('rwkv7')
  raw.model.update(block='plain', embedding_width=32)
  with pytest.raises(errors.InputError, match='embedding_width=32'):
    config_lib.parse(raw)
