"""Other programs' models in NumPy, float64, directly from the equations.

Models of transformers aren't here: `make test-peers` compares with transformers
itself.
"""

import numpy as np


def simple_rnn(state, tokens, heads=1, preset='simple'):
  """Logits BxLxV of a SimpleRNN state dict, fused or not.

  Each head has the published recurrence, S = diag(g) S + k v^T, y = S^T q; q,
  k, g and v are split from [q | k | g | v], and each of them into its heads.
  """
  state = {name: x.astype(np.float64) for name, x in state.items()}
  x = state['embedding.weight'][tokens]
  n = 0
  while f'layers.{n}.out_proj.weight' in state:
    x = _layer(state, f'layers.{n}', x, heads, preset)
    n += 1
  return _linear(state, 'lm_head', x)


def _layer(state, name, x, heads, preset):
  if f'{name}.proj.weight' in state:
    whole = _linear(state, f'{name}.proj', x)
    values = state[f'{name}.out_proj.weight'].shape[1]
    keys = (whole.shape[-1] - values) // 3
    q, k, g, v = np.split(whole, [keys, 2 * keys, 3 * keys], -1)
  else:
    q, k, g, v = (
      _linear(state, f'{name}.{part}_proj', x)
      for part in ('query', 'key', 'gate', 'value')
    )
  k, g = 1 / (1 + np.exp(-k)), 1 / (1 + np.exp(-g))
  v = np.tanh(v) if preset == 'modified' else v
  parts = [np.split(z, heads, -1) for z in (q, k, g, v)]
  y = [_recur(*one) for one in zip(*parts, strict=True)]
  return _linear(state, f'{name}.out_proj', np.concatenate(y, -1))


def _recur(q, k, g, v):
  S, outputs = np.zeros((q.shape[0], q.shape[-1], v.shape[-1])), []
  for t in range(q.shape[1]):
    S = g[:, t, :, None] * S + k[:, t, :, None] * v[:, t, None]
    outputs.append(np.einsum('bkp,bk->bp', S, q[:, t]))
  return np.stack(outputs, 1)


def _linear(state, name, x):
  return x @ state[f'{name}.weight'].T + state[f'{name}.bias']


def draw_simple_rnn(V, D, K, P, layers=2, fused=False, seed=0):
  """A random state dict; K and P are of all heads together."""
  rng = np.random.default_rng(seed)
  shapes = {'embedding.weight': (V, D)}
  linears = {'lm_head': (V, D)}
  for n in range(layers):
    own = {'query': K, 'key': K, 'gate': K, 'value': P}
    if fused:
      linears[f'layers.{n}.proj'] = 3 * K + P, D
    else:
      linears |= {f'layers.{n}.{k}_proj': (x, D) for k, x in own.items()}
    linears[f'layers.{n}.out_proj'] = D, P
  for name, shape in linears.items():
    shapes |= {f'{name}.weight': shape, f'{name}.bias': shape[:1]}
  return {
    name: rng.normal(0, 0.3, shape).astype(np.float32)
    for name, shape in shapes.items()
  }


GPT2 = {
  'model_type': 'gpt2',
  'vocab_size': 61,
  'n_positions': 24,
  'n_embd': 12,
  'n_layer': 2,
  'n_head': 3,
  'activation_function': 'gelu_new',
}


def draw_gpt2(seed=0, head=False):
  """A random state dict of the sizes in GPT2."""
  V, N, D, R = (
    GPT2[k] for k in ('vocab_size', 'n_positions', 'n_embd', 'n_layer')
  )
  shapes = {'wte.weight': (V, D), 'wpe.weight': (N, D)}
  if head:
    shapes['lm_head.weight'] = V, D
  for n in range(R):
    for name, shape in (
      ('attn.c_attn', (D, 3 * D)),
      ('attn.c_proj', (D, D)),
      ('mlp.c_fc', (D, 4 * D)),
      ('mlp.c_proj', (4 * D, D)),
      ('ln_1', (D,)),
      ('ln_2', (D,)),
    ):
      shapes[f'h.{n}.{name}.weight'] = shape
      shapes[f'h.{n}.{name}.bias'] = shape[-1:]
  shapes |= {'ln_f.weight': (D,), 'ln_f.bias': (D,)}
  rng = np.random.default_rng(seed)
  return {
    name: rng.normal(0, 0.3, shape).astype(np.float32)
    for name, shape in shapes.items()
  }


class _Tensors:
  """A state dict in float64, with the layers that read it by name."""

  def __init__(self, state, epsilon):
    self._state = {name: x.astype(np.float64) for name, x in state.items()}
    self._epsilon = epsilon

  def __getitem__(self, name):
    return self._state[name]

  def rms(self, name, x):
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + self._epsilon)
    return x * self[f'{name}.weight']

  def linear(self, name, x):
    return x @ self[f'{name}.weight'].T + self._state.get(f'{name}.bias', 0)

  def heads(self, name, x, width):
    return self.linear(name, x).reshape(*x.shape[:2], -1, width)

  def convolve(self, name, x):
    """A causal convolution BxLxE and a SiLU; the last tap is the newest."""
    taps, y = self[f'{name}.weight'][:, 0], np.zeros_like(x)
    for d in range(taps.shape[1]):
      y[:, d:] += taps[:, -1 - d] * x[:, : x.shape[1] - d]
    return _silu(y + self._state.get(f'{name}.bias', 0))

  def mlp(self, name, x):
    gate, up = (self.linear(f'{name}.{k}_proj', x) for k in ('gate', 'up'))
    return self.linear(f'{name}.down_proj', _silu(gate) * up)

  def head(self, norm, embedding, x):
    tied = 'lm_head.weight' not in self._state
    matrix = f'{embedding}.weight' if tied else 'lm_head.weight'
    return self.rms(norm, x) @ self[matrix].T


def _silu(x):
  return x / (1 + np.exp(-x))


def deltanet(state, tokens, keys):
  """Logits BxLxV of a Gated DeltaNet or DeltaNet of fla."""
  state = _Tensors(state, keys['norm_eps'])
  gated, H = keys['model_type'] == 'gated_deltanet', keys['num_heads']
  x = state['model.embeddings.weight'][tokens]
  for n in range(keys['num_hidden_layers']):
    name = f'model.layers.{n}'
    h = state.rms(f'{name}.attn_norm', x)
    q, k, v = (
      state.convolve(
        f'{name}.attn.{part}_conv1d',
        state.linear(f'{name}.attn.{part}_proj', h),
      ).reshape(*tokens.shape, H, -1)
      for part in 'qkv'
    )
    q, k = (z / np.sqrt((z**2).sum(-1, keepdims=True) + 1e-6) for z in (q, k))
    b = 1 / (1 + np.exp(-state.linear(f'{name}.attn.b_proj', h)))
    b = b * (2 if keys.get('allow_neg_eigval') else 1)
    a = np.ones_like(b)
    if gated:
      raw = state.linear(f'{name}.attn.a_proj', h)
      raw = np.logaddexp(raw + state[f'{name}.attn.dt_bias'], 0)
      a = np.exp(-np.exp(state[f'{name}.attn.A_log']) * raw)
    S, y = np.zeros((len(tokens), *q.shape[2:], v.shape[-1])), np.zeros_like(v)
    for t in range(tokens.shape[1]):
      S = a[:, t, :, None, None] * S
      error = v[:, t] - np.einsum('bhkp,bhk->bhp', S, k[:, t])
      write = b[:, t, :, None] * error
      S = S + k[:, t, :, :, None] * write[:, :, None]
      y[:, t] = np.einsum('bhkp,bhk->bhp', S, q[:, t]) / q.shape[-1] ** 0.5
    y = state.rms(f'{name}.attn.o_norm', y).reshape(*tokens.shape, -1)
    if gated:
      y = y * _silu(state.linear(f'{name}.attn.g_proj', h))
    x = x + state.linear(f'{name}.attn.o_proj', y)
    x = x + state.mlp(f'{name}.mlp', state.rms(f'{name}.mlp_norm', x))
  return state.head('model.norm', 'model.embeddings', x)


def gla(state, tokens, keys):
  """Logits BxLxV of a Gated Linear Attention of fla."""
  state, H = _Tensors(state, keys['norm_eps']), keys['num_heads']
  x = state['model.embeddings.weight'][tokens]
  for n in range(keys['num_hidden_layers']):
    name = f'model.layers.{n}'
    h = state.rms(f'{name}.attn_norm', x)
    q, k, v, g = (
      state.linear(f'{name}.attn.{part}_proj', h).reshape(*tokens.shape, H, -1)
      for part in 'qkvg'
    )
    raw = h @ state[f'{name}.attn.gk_proj.0.weight'].T
    raw = state.linear(f'{name}.attn.gk_proj.1', raw).reshape(k.shape)
    a = np.exp(-np.logaddexp(0, -raw) / 16)
    S, y = np.zeros((len(tokens), *q.shape[2:], v.shape[-1])), np.zeros_like(v)
    for t in range(tokens.shape[1]):
      S = a[:, t, :, :, None] * S + k[:, t, :, :, None] * v[:, t, :, None]
      y[:, t] = np.einsum('bhkp,bhk->bhp', S, q[:, t]) / q.shape[-1] ** 0.5
    y = state.rms(f'{name}.attn.g_norm_swish_gate', y) * _silu(g)
    x = x + state.linear(f'{name}.attn.o_proj', y.reshape(*tokens.shape, -1))
    x = x + state.mlp(f'{name}.mlp', state.rms(f'{name}.mlp_norm', x))
  return state.head('model.norm', 'model.embeddings', x)


def rwkv7(state, tokens, keys):
  """Logits BxLxV of an RWKV-7 of fla, by its config.json."""
  state = _Tensors(state, keys['norm_eps'])
  K, first = keys['head_dim'], None

  def norm(name, x, epsilon=keys['norm_eps']):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    weight, bias = state[f'{name}.weight'], state[f'{name}.bias']
    return x * weight.reshape(-1, *x.shape[3:]) + bias.reshape(-1, *x.shape[3:])

  def earlier(x):
    return np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], 1) - x

  x = state['model.embeddings.weight'][tokens]
  if keys.get('norm_first', True):
    x = norm('model.layers.0.pre_norm', x)
  for n in range(keys['num_hidden_layers']):
    name = f'model.layers.{n}'
    h = norm(f'{name}.attn_norm', x)

    def shifted(part, name=name, h=h):
      return h + earlier(h) * state[f'{name}.attn.x_{part}'][0, 0]

    def low_rank(part, source, between=lambda x: x, name=name, read=shifted):
      inner = between(
        state.linear(f'{name}.attn.{part}_lora.lora.0', read(source))
      )
      return state.linear(f'{name}.attn.{part}_lora.lora.2', inner)

    r, k, v = (
      state.linear(f'{name}.attn.{part}_proj', shifted(part)) for part in 'rkv'
    )
    w = np.exp(-np.exp(-0.5) * _sigmoid(low_rank('w', 'w', np.tanh)))
    a = _sigmoid(low_rank('a', 'a'))
    g = low_rank('g', 'g', _sigmoid)
    if first is None:
      first = v
    else:
      v = v + (first - v) * _sigmoid(low_rank('v', 'v'))
    kk = (k * state[f'{name}.attn.k_k']).reshape(*tokens.shape, -1, K)
    fused = 1e-6 if keys.get('fuse_norm', True) else 0
    kk = kk / np.sqrt((kk**2).sum(-1, keepdims=True) + fused)
    k = k * (1 + (a - 1) * state[f'{name}.attn.k_a'])
    H = kk.shape[2]
    r, w, k, v, a = (z.reshape(*tokens.shape, H, -1) for z in (r, w, k, v, a))
    S, o = np.zeros((len(tokens), H, K, v.shape[-1])), np.zeros_like(v)
    for t in range(tokens.shape[1]):
      seen = np.einsum('bhkp,bhk->bhp', S, kk[:, t])
      erased = (a * kk)[:, t, ..., None] * seen[:, :, None]
      S = w[:, t, ..., None] * S - erased
      S = S + k[:, t, ..., None] * v[:, t, :, None]
      o[:, t] = np.einsum('bhkp,bhk->bhp', S, r[:, t])
    o = norm(f'{name}.attn.g_norm', o, K * keys['norm_eps'])
    o = o + (r * k * state[f'{name}.attn.r_k']).sum(-1, keepdims=True) * v
    y = o.reshape(*tokens.shape, -1) * g
    x = x + state.linear(f'{name}.attn.o_proj', y)
    h = norm(f'{name}.ffn_norm', x)
    h = h + earlier(h) * state[f'{name}.ffn.x_k']
    h = np.maximum(state.linear(f'{name}.ffn.key', h), 0) ** 2
    x = x + state.linear(f'{name}.ffn.value', h)
  return norm('model.norm', x) @ state['lm_head.weight'].T


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))
