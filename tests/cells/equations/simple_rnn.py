"""SimpleRNN: its published presets, and the improved ones."""

import numpy as np

from tests.cells.equations import common


def simple_rnn(params, x, c):
  presets = {'improved': _improved, 'coupled': _coupled}
  y, a = presets.get(c.preset, _published)(params, x, c)
  if c.attention != 'none':
    y = np.stack([_with_context(params, y[: t + 1], c) for t in range(len(y))])
  gates = {'keep': a}
  if c.preset not in presets:
    gates['write'] = _split(params, x, c)[1]
  return y, gates


def _split(params, x, c):
  """q, k, the gates' input, v and others of each head, LxHx_."""
  K, P, G = c.key_width, c.value_width, c.key_width if c.decay == 'key' else 1
  names = ('query', 'key', 'gate', 'value', 'output_gate')
  if c.fused:
    heads = common.dense(params['projection'], x).reshape(len(x), c.heads, -1)
    parts = np.split(heads, np.cumsum([K, K, G, P]), -1)
  else:
    parts = [
      common.dense(params[f'projections_{name}'], x).reshape(
        len(x), c.heads, -1
      )
      for name in names[: 4 + (c.preset == 'improved')]
    ]
  if c.preset != 'improved':
    parts[1] = common.sigmoid(parts[1])
  return parts


def _read(q, k, v, a):
  """y of each head: S_t = diag(a_t) S_{t-1} + k_t v_t^T, y_t = S_t^T q_t."""
  S, out = np.zeros((*k.shape[1:], v.shape[-1])), []
  for t in range(len(q)):
    S = a[t][..., None] * S + k[t, ..., None] * v[t, :, None]
    out.append(np.einsum('hkp,hk->hp', S, q[t]))
  return np.stack(out)


def _published(params, x, c):
  q, k, g, v = _split(params, x, c)[:4]
  v = np.tanh(v) if c.preset == 'modified' else v
  a = common.sigmoid(g)
  return common.joined(_read(q, k, v, a)), a


def _improved(params, x, c):
  q, k, g, v, gate = _split(params, x, c)
  mixed = np.concatenate([q, k, v], -1)  # whose channels go head by head
  if 'taps' in params:
    flat = common.convolve(common.joined(mixed), params['taps'])
    mixed = flat.reshape(mixed.shape)
  K = c.key_width
  q, k, v = np.split(common.silu(mixed), [K, 2 * K], -1)
  a = common.sigmoid(g + params['gate_bias'].reshape(c.heads, -1))
  y = common.rms_norm(_read(q, k, v, a)) * common.silu(gate)
  return common.joined(y), a


def _coupled(params, x, c):
  """Head by head of each group, which shares keys."""
  K, P, each = c.key_width, c.value_width, c.heads // c.groups
  u = common.dense(params['projection'], x).reshape(len(x), c.groups, -1)
  q, k, g, v, gate = np.split(u, np.cumsum([K, K, K, each * P]), -1)
  mixed = np.concatenate([q, k, v], -1)
  flat = common.convolve(common.joined(mixed), params['taps'])
  mixed = common.silu(flat + params['taps_bias']).reshape(mixed.shape)
  q, k, v = np.split(mixed, [K, 2 * K], -1)
  a = common.sigmoid(g + params['gate_bias'].reshape(c.groups, K))
  out = np.zeros((len(x), c.heads, P))
  for h in range(c.heads):
    group, values = h // each, slice(h % each * P, (h % each + 1) * P)
    S = np.zeros((K, P))
    for t in range(len(x)):
      v_t, keep = v[t, group, values], a[t, group]
      S = np.diag(keep) @ S + np.outer((1 - keep) * k[t, group], v_t)
      y = S.T @ q[t, group] + params['skip'][h] * v_t
      out[t, h] = common.rms_norm(y) * common.silu(gate[t, group, values])
  return common.joined(out), a


def _with_context(params, y, c):
  """[y_t; c_t] of the last step t, from all y so far."""
  query = y[-1]
  if c.attention == 'general':
    query = query @ params['attention_weights']['kernel']
  seen = y[-c.attention_window - 1 :]
  weights = np.exp(seen @ query)
  return np.concatenate([y[-1], weights / weights.sum() @ seen])
