"""Cells with a matrix state whose gates don't read it, and linear cells."""

import numpy as np

from tests.cells.equations import attention
from tests.cells.equations import common

joined = common.joined
rms_norm = common.rms_norm
sigmoid = common.sigmoid
silu = common.silu
softplus = common.softplus


def project(params, x, units, *widths):
  """The parts of each unit's projection, LxHx_."""
  u = (x @ params['projection']['kernel']).reshape(len(x), units, -1)
  return np.split(u, np.cumsum(widths)[:-1], -1)


def convolve(x_LxHxE, taps):
  return common.convolve(joined(x_LxHxE), taps).reshape(x_LxHxE.shape)


def remember(q, k, v, a):
  """What the memory of each head says, LxHxP; a is LxHxK or LxHx1."""
  state = np.zeros((*k.shape[1:], v.shape[-1]))
  out = []
  for t in range(len(q)):
    state = a[t][..., None] * state
    state = state + k[t][..., None] * v[t][:, None]
    out.append(np.einsum('hkp,hk->hp', state, q[t]))
  return np.stack(out)


def remember_by_level(q, k, v, a, lambdas):
  """The same, with a weight LxHx_ of each level of the past."""
  out = np.zeros_like(v)
  for t, h in np.ndindex(*v.shape[:2]):
    weights = common.level_weights(lambdas[t, h], t, len(q))
    for s in range(t + 1):
      kept = a[s + 1 : t + 1, h].prod()
      out[t, h] += weights[s] * kept * (q[t, h] @ k[s, h]) * v[s, h]
  return out


def scale(params):
  return params['norm']['scale'] if 'norm' in params else 1.0


def gla(params, x, c):
  K, P = c.key_width, c.value_width
  own = () if c.shared_gate else (c.rank,)
  q, k, v, gate, *raw = project(params, x, c.heads, K, K, P, P, *own)
  if c.shared_gate:  # of all heads
    raw = [np.repeat((x @ params['gate_down']['kernel'])[:, None], c.heads, 1)]
  raw = np.einsum('lhr,hrk->lhk', raw[0], params['gate_up'])
  a = sigmoid(raw + params['gate_bias']) ** (1 / c.temperature)
  o = rms_norm(remember(q * K**-0.5, k, v, a)) * scale(params)
  return joined(o * silu(gate)), {'keep': a}


def hgrn2(params, x, c):
  K = c.key_width
  q, raw, v = project(params, x, c.heads, K, K, c.value_width)
  a = c.lower_bound + (1 - c.lower_bound) * sigmoid(raw)
  return joined(rms_norm(remember(silu(q), 1 - a, v, a))), {'keep': a}


def retnet(params, x, c):
  H, K, P = c.heads, c.key_width, c.value_width
  q, k, v, gate = project(params, x, H, K, K, P, P)
  t = np.arange(len(x))[:, None, None]
  q, k = (common.rotated(z, t, c.rotary) for z in (q, k))
  a = 1 - 2.0 ** (-5 - np.arange(H))
  a = np.broadcast_to(a[:, None], (len(x), H, 1))
  o = remember(q, k * K**-0.5, v, a)
  return joined(rms_norm(o) * silu(gate)), {'keep': a}


def mamba2(params, x, c):
  G, K, P, each = c.groups, c.key_width, c.value_width, c.heads // c.groups
  levels = each * getattr(c, 'weights', 0)  # of log_linear_mamba2
  widths = each * P, each * P, K, K, each, levels
  *parts, levels = project(params, x, G, *widths)
  multipliers = c.multipliers or np.ones(5)
  gate, v, k, q, raw = (m * z for m, z in zip(multipliers, parts, strict=True))
  mixed = np.concatenate([v, k, q], -1)
  bias = params['taps_bias'].reshape(G, -1)
  mixed = silu(convolve(mixed, params['taps']) + bias)
  v, k, q = np.split(mixed, [each * P, each * P + K], -1)
  v = v.reshape(len(x), c.heads, P)
  k, q = (np.repeat(z, each, 1) for z in (k, q))
  dt = softplus(raw.reshape(len(x), c.heads) + params['dt_bias'])[..., None]
  dt = np.maximum(dt, c.min_step)
  a = np.exp(-dt * np.exp(params['log_rate'])[:, None])
  if levels.size:
    raw = levels.reshape(len(x), c.heads, -1) * params['level_scale']
    o = remember_by_level(q, k, dt * v, a, softplus(raw))
  else:
    o = remember(q, k, dt * v, a)
  o = o + params['skip'][:, None] * v
  o, gate = o.reshape(gate.shape), silu(gate)
  if c.norm == 'none':
    return joined(o * gate), {'keep': a}
  if c.norm == 'before':
    return joined(rms_norm(o) * scale(params) * gate), {'keep': a}
  return joined(rms_norm(o * gate) * scale(params)), {'keep': a}


log_linear_mamba2 = mamba2


def mamba3(params, x, c):
  G, H, K, P, R = c.groups, c.heads, c.key_width, c.value_width, c.mimo_rank
  each, A, L = H // G, c.rotations, len(x)
  widths = each * P, each * P, R * K, R * K, each, each, each, A
  gate, v, k, q, d, r, m, z = project(params, x, G, *widths)
  d, r, m = (part.reshape(L, H) for part in (d, r, m))
  dt, m = softplus(d + params['dt_bias']), sigmoid(m)
  a = np.exp(-dt * np.maximum(softplus(r), 1e-4))
  k, q = (
    np.repeat(
      rms_norm(part.reshape(L, G, R, K))
      * params[f'{name}_scale'].reshape(G, 1, K),
      each,
      1,
    )
    + params[f'{name}_bias'].reshape(H, R, K)
    for name, part in (('key', k), ('query', q))
  )
  angle = np.pi * np.cumsum(dt[..., None] * np.repeat(np.tanh(z), each, 1), 0)
  k, q = (_turned(part, angle[:, :, None]) for part in (k, q))
  v, gate = (part.reshape(L, H, 1, P) for part in (v, gate))
  up, open_, down = (
    params[f'mimo_{name}'].reshape(H, R, P) if R > 1 else 1.0
    for name in ('value', 'gate', 'output')
  )
  v, gate = v * up, gate * open_
  S, out = np.zeros((H, K, P)), np.zeros((L, H, P))
  for t, h in np.ndindex(L, H):
    S[h] *= a[t, h]
    if t:
      old = a[t, h] * (1 - m[t, h]) * dt[t, h]
      S[h] += old * k[t - 1, h].T @ v[t - 1, h]
    S[h] += m[t, h] * dt[t, h] * k[t, h].T @ v[t, h]
    o = q[t, h] @ S[h] + params['skip'][h] * v[t, h]
    if c.output_norm:
      o = rms_norm(o) * (params['norm']['scale'][h] if c.norm_scale else 1)
    y = o * silu(gate[t, h])
    out[t, h] = (y * (down if R == 1 else down[h])).sum(0)
  return joined(out), {'keep': a[..., None], 'new': m[..., None]}


def _turned(x, angle):
  """Neighbours as complex numbers, the first of them turned."""
  width = 2 * angle.shape[-1]
  pairs = x[..., :width:2] + 1j * x[..., 1:width:2]
  pairs = pairs * np.exp(1j * angle)
  made = x.copy()
  made[..., :width:2], made[..., 1:width:2] = pairs.real, pairs.imag
  return made


def mamba2_attention(params, x, c):
  mixed, gates = mamba2(params['mamba2'], x, c.mamba2)
  seen, _ = attention.attention(params['attention'], x, c.attention)
  y = c.mamba2_multiplier * common.dense(params['mamba2']['output'], mixed)
  own = common.dense(params['attention']['output'], seen)
  return y + c.attention_multiplier * own, gates


def mamba(params, x, c):
  """Of S channels with K numbers each, `rank` of which make dt."""
  u, gate = np.moveaxis(
    (x @ params['projection']['kernel']).reshape(len(x), -1, 2), 2, 0
  )
  u = silu(common.convolve(u, params['taps']) + params.get('taps_bias', 0))
  K, R = c.key_width, params['dt']['kernel'].shape[0]
  r, k, q = np.split(u @ params['selection']['kernel'], [R, R + K], -1)
  if c.selection_norm:
    r, k, q = (
      rms_norm(z) * params[f'{name}_norm']['scale']
      for name, z in (('dt', r), ('key', k), ('query', q))
    )
  dt = softplus(r @ params['dt']['kernel'] + params['dt_bias'])
  a = np.exp(-dt[..., None] * np.exp(params['log_rate']))
  h, out = 0, []
  for t in range(len(x)):
    h = a[t] * h + dt[t][:, None] * u[t][:, None] * k[t]
    out.append(h @ q[t] + params['skip'] * u[t])
  return np.stack(out) * silu(gate), {'keep': a}


def mlstm(params, x, c):
  """Published, without a stabilizer: float64 holds exp of these gates."""
  K, P = c.key_width, c.value_width
  q, k, v, out, i, f = project(params, x, c.heads, K, K, P, P, 1, 1)
  bias_i, bias_f = params['gate_bias'].T[:, :, None]

  def capped(z):
    return c.gate_cap * np.tanh(z / c.gate_cap) if c.gate_cap else z

  i, f = capped(i + bias_i), sigmoid(capped(f + bias_f))
  k = np.exp(i) * k * K**-0.5
  m, floor, maxima = np.zeros(c.heads), [], []
  for i_t, f_t in zip(i[..., 0], f[..., 0], strict=True):
    m, before = np.maximum(np.maximum(m + np.log(f_t), i_t), 0), m
    floor.append((f_t * np.exp(before - m))[:, None])
    maxima.append(m[:, None])
  n = remember(q, k, np.ones_like(v[..., :1]), f)
  weight = np.maximum(abs(n), 1) + c.normalizer_epsilon * np.exp(maxima)
  h = remember(q, k, v, f) / weight
  if c.norm == 'layer':
    h = h - h.mean(-1, keepdims=True)
  h = rms_norm(h) * scale(params)
  return joined(h * sigmoid(out)), {'keep': floor}


def rg_lru(params, x, c):
  both = common.dense(params['projection'], x)
  u, gate = np.split(both.reshape(len(x), c.heads, -1), 2, -1)
  u = convolve(u, params['taps']) + params['taps_bias'].reshape(c.heads, -1)
  raw = np.einsum('lhp,hpq->lhq', u, params['gate']['kernel'])
  r, i = np.split(sigmoid(raw + params['gate']['bias']), 2, -1)
  rate = 8 * softplus(params['decay']).reshape(c.heads, -1)
  a, h, out = np.exp(-rate * r), 0, []
  for t, (a_t, i_t, u_t) in enumerate(zip(a, i, u, strict=True)):
    share = 1 if c.whole_start and not t else np.sqrt(1 - a_t**2)
    h = a_t * h + share * i_t * u_t
    out.append(h)
  tanh = np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3))
  y = np.stack(out) * 0.5 * gate * (1 + tanh)
  return joined(y), {'keep': joined(a), 'write': joined(i)}


def _attention(D, c):
  return c.heads * (2 * c.key_width + 3 * c.value_width) * D


def _scale(c):
  return c.norm_scale * c.value_width


def _gla(D, c):
  sets = 1 if c.shared_gate else c.heads
  up = c.heads * (c.rank + 1) * c.key_width
  return _attention(D, c) + sets * c.rank * D + up + _scale(c)


def _mlstm(D, c):
  return _attention(D, c) + 2 * c.heads * (D + 1) + c.heads * _scale(c)


def _mamba2(D, c):
  H, P = c.heads, c.value_width
  E = H * P + 2 * c.groups * c.key_width
  projected = D * (H * P + E + H)
  norm = H * _scale(c)
  return projected + (c.convolution + 1) * E + 3 * H + H * P * D + norm


def _mamba3(D, c):
  G, H, K, P, R = c.groups, c.heads, c.key_width, c.value_width, c.mimo_rank
  projected = D * (H * (2 * P + 3) + G * (2 * R * K + c.rotations))
  own = 2 * (G + R * H) * K + 2 * H + (R > 1) * 3 * H * R * P
  return projected + own + H * P * D + H * _scale(c)


def _mamba(D, c):
  S, K, R = c.inner_width, c.key_width, c.rank
  of_channel = c.convolution + c.convolution_bias + K + 2
  norms = c.selection_norm * (R + 2 * K)
  return 3 * D * S + S * (R + 2 * K) + R * S + S * of_channel + norms


def _rg_lru(D, c):
  S, P = c.heads * c.head_width, c.head_width
  return 3 * D * S + 2 * P * S + (c.convolution + 6) * S + D


# The parameters of each, as documented.
SIZES = {
  'gla': _gla,
  'hgrn2': lambda D, c: 2 * c.heads * (c.key_width + c.value_width) * D,
  'retnet': _attention,
  'mamba2': _mamba2,
  'mamba3': _mamba3,
  'log_linear_mamba2': lambda D, c: (
    _mamba2(D, c) + (D + 1) * c.heads * c.weights
  ),
  'mamba2_attention': lambda D, c: (
    _mamba2(D, c.mamba2) + attention.SIZES['attention'](D, c.attention)
  ),
  'mamba': _mamba,
  'mlstm': _mlstm,
  'rg_lru': _rg_lru,
}
