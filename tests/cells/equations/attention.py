"""Attention and latent attention, query by query."""

import numpy as np

from tests.cells.equations import common
from tests.support import bdh_oracle


def attention(params, x, c):
  H, G, K, each = c.heads, c.groups, c.head_width, c.heads // c.groups
  u = common.dense(params['projection'], x).reshape(len(x), G, -1)
  q, k, v = np.split(u, [u.shape[-1] - 2 * K, u.shape[-1] - K], -1)
  q, gate = q.reshape(len(x), H, -1), 1.0
  if c.output_gate:
    q, raw = np.split(q, 2, -1)
    gate = common.sigmoid(raw)
  if c.qk_norm:
    plus = float(c.norm_plus_one)
    q = common.rms_norm(q) * (plus + params['query_norm']['scale'])
    k = common.rms_norm(k) * (plus + params['key_norm']['scale'])
  t = np.arange(len(x))
  q, k = (_turned(z, t[:, None, None], c) for z in (q, k))
  k, v = np.repeat(k, each, 1), np.repeat(v, each, 1)
  y = np.zeros(q.shape)
  for i, h in np.ndindex(len(x), H):
    seen = t if c.sees == 'row' else t[max(0, i - c.window) : i + 1]
    scores = k[seen, h] @ q[i, h] * (c.score_scale or K**-0.5)
    best = np.argsort(-scores)[: c.top_k or None]
    weights = np.exp(scores[best])
    y[i, h] = weights / weights.sum() @ v[seen[best], h]
  return common.joined(y * gate), None


def _turned(x, t, c):
  """The first `rotary_width` channels rotated."""
  if not c.rotary:
    return x
  x, rest = np.split(x, [c.rotary_width or x.shape[-1]], -1)
  return np.concatenate([common.rotated(x, t, c.rotary), rest], -1)


def latent_attention(params, x, c):
  H, K, R = c.heads, c.key_width, c.shared_width
  if c.query_rank:
    low = common.rms_norm(common.dense(params['query_down'], x))
    q = low * params['query_norm']['scale'] @ params['query_up']['kernel']
  else:
    q = x @ params['query']['kernel']
  q = q.reshape(len(x), H, R + K)
  both = common.dense(params['latent'], x)
  C = c.kv_rank
  latent = common.rms_norm(both[:, :C]) * params['latent_norm']['scale']
  expand = params['expand']['kernel'].reshape(C, H, -1)
  t = np.arange(len(x))
  shared = common.rotated(both[:, C:], t[:, None], c.rotary)
  first = common.rotated(q[..., :R], t[:, None, None], c.rotary)
  out = np.zeros((len(x), H, c.value_width))
  for i, h in np.ndindex(len(x), H):
    seen = [*range(max(0, i - c.window), i + 1)]
    own = latent[seen] @ expand[:, h]
    scores = shared[seen] @ first[i, h] + own[:, :K] @ q[i, h, R:]
    weights = np.exp(scores / np.sqrt(R + K))
    out[i, h] = weights / weights.sum() @ own[:, K:]
  return common.joined(out), None


def bdh(params, x, c):
  options = bdh_oracle.Options(c.heads, c.rotary, c.sees, c.weights)
  N = len(params['output']['kernel'])
  whole = params | {'output': {'kernel': np.eye(N)}}
  return bdh_oracle.layer(whole, x[None], options)[0], None


def _attention(D, c):
  H, G, K = c.heads, c.groups, c.head_width
  columns = (H * (1 + c.output_gate) + 2 * G) * K
  biases = columns * c.projection_bias + D * c.output_bias
  return D * columns + H * K * D + 2 * K * c.qk_norm + c.biases * biases


def _latent_attention(D, c):
  H, K, R, P, C = c.heads, c.key_width, c.shared_width, c.value_width, c.kv_rank
  Q = c.query_rank
  queries = D * Q + Q + Q * H * (R + K) if Q else D * H * (R + K)
  rest = D * (C + R) + C + C * H * (K + P) + D * H * P
  return queries + rest + c.biases * (Q + C + R + D)


# The parameters of each, as documented.
SIZES = {
  'attention': _attention,
  'latent_attention': _latent_attention,
  'bdh': lambda D, c: 3 * c.heads * c.neurons * D,
}
