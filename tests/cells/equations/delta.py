"""The cells of the delta rule, head by head."""

import numpy as np

from tests.cells.equations import common

rms_norm = common.rms_norm
sigmoid = common.sigmoid
silu = common.silu
softplus = common.softplus


def unit(x):
  return x / np.sqrt((x * x).sum() + 1e-6)


def deltanet(params, x, c):
  def decay(h, raw):
    return np.ones(1)

  def finish(h, o, raw):
    return rms_norm(o)

  return _run(params, x, c, {}, decay, finish)


deltaproduct = deltanet


def gated_deltanet(params, x, c):
  def decay(h, raw):
    rate = np.exp(params['log_rate'][h])
    return np.exp(-rate * softplus(raw + params['step_bias'][h]))

  def finish(h, o, raw):
    scale = params['norm']['scale'] if c.norm_scale else 1.0
    return rms_norm(o) * scale * silu(raw)

  levels = {'l': c.weights} if hasattr(c, 'levels') else {}
  own = {'a': 1, 'g': c.value_width} | levels
  return _run(params, x, c, own, decay, finish)


gated_deltaproduct = log_linear_gated_deltanet = gated_deltanet


def kda(params, x, c):
  def decay(h, raw):
    raw = raw @ params['decay_up'][h] + params['step_bias'][h]
    return np.exp(-np.exp(params['log_rate'][h]) * softplus(raw))

  def finish(h, o, raw):
    raw = raw @ params['output_gate_up'][h]
    if c.output_gate_bias:
      raw = raw + params['output_gate_bias'][h]
    return rms_norm(o) * sigmoid(raw)

  return _run(params, x, c, {'a': c.rank, 'g': c.rank}, decay, finish)


def gated_deltanet2(params, x, c):
  H, K, P = c.heads, c.key_width, c.value_width
  u = (x @ params['projection']['kernel']).reshape(len(x), H, -1)
  mixed, erase, write, low, out_low = np.split(
    u, np.cumsum([2 * K + P, K, P, c.rank]), -1
  )
  mixed = silu(common.convolve(common.joined(mixed), params['taps']))
  q, k, v = np.split(mixed.reshape(len(x), H, -1), [K, 2 * K], -1)
  erase, write = sigmoid(erase), sigmoid(write)
  keep, out = np.zeros_like(erase), np.zeros_like(v)
  S = np.zeros((H, K, P))
  for t, h in np.ndindex(len(x), H):
    raw = low[t, h] @ params['decay_up'][h] + params['step_bias'][h]
    keep[t, h] = np.exp(-np.exp(params['log_rate'][h]) * softplus(raw))
    key, b = unit(k[t, h]), c.max_beta * erase[t, h]
    erased = np.eye(K) - np.outer(key, b * key)
    S[h] = erased @ np.diag(keep[t, h]) @ S[h]
    S[h] += np.outer(key, write[t, h] * v[t, h])
    o = rms_norm(S[h].T @ unit(q[t, h]) / np.sqrt(K))
    gate = out_low[t, h] @ params['output_gate_up'][h]
    out[t, h] = o * sigmoid(gate + params['output_gate_bias'][h])
  return common.joined(out), {'keep': keep, 'erase': erase, 'write': write}


def _run(params, x, c, own, decay, finish):
  """The docstring of parts/delta.py; what each step wrote is kept apart.

  With `householders` it is that of parts/delta_product.py, with `levels` that
  of parts/log_linear.py. `own` are the widths of what a head's projection has
  after q, k, v and beta: the inputs of `decay`, a of a head, of `finish`, its
  output, and of the weights of levels.
  """
  H, K, P = c.heads, c.key_width, c.value_width
  each = c.memories // H  # heads of values that share a key
  n = getattr(c, 'householders', 1)
  sizes = {'q': K, 'k': K, 'v': P, 'beta': 1} | own
  u = (x @ params['projection']['kernel']).reshape(len(x), H, -1)
  if getattr(c, 'shared_gate', False):  # all heads read the same
    low = [x @ params[f'{name}_down']['kernel'] for name in c.shared]
    low = np.concatenate(low, -1)[:, None]
    u = np.concatenate([u, np.repeat(low, H, 1)], -1)
  columns = {
    name: size
    * (1 if name in 'qk' else each)
    * (n if name in ('k', 'v', 'beta') else 1)
    for name, size in sizes.items()
  }
  ends = np.cumsum([*columns.values()])[:-1]
  first = K + n * (K + each * P)
  mixed = u[:, :, :first].reshape(len(x), -1)
  if 'taps' in params:
    mixed = common.convolve(mixed, params['taps'])
  u[:, :, :first] = silu(mixed).reshape(len(x), H, -1)
  out = np.zeros((len(x), each * H, P))
  gates = {'keep': [], 'write': []}
  S = np.zeros((each * H, len(x), K, P))
  for t in range(len(x)):
    keep, write = [], np.zeros((H, n, each, 1))
    for h in range(each * H):
      place, part = divmod(h, each)
      parts = np.split(u[t, place], ends)
      read = dict(zip(sizes, parts, strict=True))
      a, g, levels = (
        np.split(read[name], each)[part] if name in read else None
        for name in 'agl'
      )
      a = decay(h, a)
      S[h] = np.diag(np.broadcast_to(a, K)) @ S[h]
      for j in range(n):
        k = unit(np.split(read['k'], n)[j])
        v = read['v'].reshape(n, each, P)[j, part]
        rate = sigmoid(read['beta'].reshape(n, each)[j, part])
        erased = np.eye(K) - c.max_beta * rate * np.outer(k, k)
        S[h] = erased @ S[h]
        S[h, t] += c.max_beta * rate * np.outer(k, v)
        write[place, j, part] = rate
      q = unit(read['q']) / np.sqrt(K)
      weights = np.ones(len(x))
      if levels is not None:
        lambdas = softplus(params['level_scale'][h] * levels)
        weights = common.level_weights(lambdas, t, len(x))
      out[t, h] = finish(h, np.einsum('s,skp,k->p', weights, S[h], q), g)
      keep.append(a)
    gates['keep'].append(keep)
    gates['write'].append(write.reshape(-1, 1))
  return out.reshape(len(x), -1), gates


def rwkv7(params, x, c):
  H, K, P = c.heads, c.key_width, c.value_width
  before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
  raw = {}
  for n, name in enumerate('rwkvag'):
    shifted = x + (before - x) * params['shift'][n]
    columns = shifted @ params[f'projections_{name}']['kernel']
    sets = 1 if c.shared_gate and name in 'wag' else H
    raw[name] = np.broadcast_to(
      columns.reshape(len(x), sets, -1),
      (len(x), H, columns.shape[1] // sets),
    )
  S, out = np.zeros((H, K, P)), np.zeros((len(x), H, P))
  gates = {'keep': np.zeros((len(x), H, K)), 'write': np.zeros((len(x), H, K))}
  for t, h in np.ndindex(len(x), H):
    r, w, k, v, a, g = (raw[name][t, h] for name in 'rwkvag')
    w = np.tanh(w) @ params['up_w'][h] + params['decay_bias'][h]
    w = np.exp(-np.exp(-0.5) * sigmoid(w))
    a = sigmoid(a @ params['up_a'][h] + params['rate_bias'][h])
    g = sigmoid(g) @ params['up_g'][h]
    n = unit(k * params['key_scale'][h])
    k = k * (1 + (a - 1) * params['key_rate'][h])
    S[h] = (np.diag(w) - np.outer(a * n, n)) @ S[h] + np.outer(k, v)
    o = S[h].T @ r
    o = (o - o.mean()) / np.sqrt(o.var() + 64e-5)
    o = o * params['norm_scale'][h] + params['norm_bias'][h]
    out[t, h] = (o + (r * params['bonus'][h] * k).sum() * v) * g
    gates['keep'][t, h], gates['write'][t, h] = w, a
  return out.reshape(len(x), -1), gates


def _deltanet(D, c):
  H, M, P = c.heads, c.memories, c.value_width
  E = 2 * H * c.key_width + M * P
  norm = c.norm_scale * P
  return D * (E + M) + c.convolution * E + M * P * D + norm


def _gated_deltanet(D, c):
  M, P = c.memories, c.value_width
  return _deltanet(D, c) + D * M * (P + 1) + 2 * M


def _log_linear_gated_deltanet(D, c):
  return _gated_deltanet(D, c) + (D + 1) * c.memories * c.weights


def _more(size):
  """The parameters of a cell with n keys, values and rates, from those of 1."""

  def of(D, c):
    channels = c.heads * c.key_width + c.memories * c.value_width
    own = D * (channels + c.memories) + c.convolution * channels
    return size(D, c) + (c.householders - 1) * own

  return of


def _kda(D, c):
  H, K, P, R = c.heads, c.key_width, c.value_width, c.rank
  down = D * 2 * R * (1 if c.shared_gate else H)
  up = H * R * (K + P) + H * (1 + K) + c.output_gate_bias * H * P
  return _deltanet(D, c) + down + up


def _gated_deltanet2(D, c):
  gates = c.heads * (c.key_width + c.value_width)
  return _kda(D, c) + D * (gates - c.heads)


def _rwkv7(D, c):
  H, K, P, ranks = c.heads, c.key_width, c.value_width, c.ranks
  down = D * (1 if c.shared_gate else H) * sum(ranks.values())
  up = H * (ranks['w'] * K + ranks['a'] * K + ranks['g'] * P)
  own = 6 * D + down + up + H * (5 * K + 2 * P)
  return D * H * (2 * K + P) + own + H * P * D


# The parameters of each, as documented.
SIZES = {
  'deltanet': _deltanet,
  'gated_deltanet': _gated_deltanet,
  'log_linear_gated_deltanet': _log_linear_gated_deltanet,
  'deltaproduct': _more(_deltanet),
  'gated_deltaproduct': _more(_gated_deltanet),
  'kda': _kda,
  'gated_deltanet2': _gated_deltanet2,
  'rwkv7': _rwkv7,
}
