"""Other programs' models in NumPy, float64, directly from the equations."""

import ml_dtypes
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


def gpt2(state, tokens, heads, tied=True):
  """Logits BxLxV of a GPT-2 state dict without a prefix."""
  state = {name: x.astype(np.float64) for name, x in state.items()}
  x = state['wte.weight'][tokens] + state['wpe.weight'][: tokens.shape[1]]
  n = 0
  while f'h.{n}.ln_1.weight' in state:
    x = x + _attend(state, f'h.{n}', _norm(state, f'h.{n}.ln_1', x), heads)
    h = _conv1d(state, f'h.{n}.mlp.c_fc', _norm(state, f'h.{n}.ln_2', x))
    h = 0.5 * h * (1 + np.tanh((2 / np.pi) ** 0.5 * (h + 0.044715 * h**3)))
    x = x + _conv1d(state, f'h.{n}.mlp.c_proj', h)
    n += 1
  head = state['wte.weight' if tied else 'lm_head.weight']
  return _norm(state, 'ln_f', x) @ head.T


def _attend(state, name, x, heads):
  q, k, v = (
    z.reshape(*z.shape[:2], heads, -1)
    for z in np.split(_conv1d(state, f'{name}.attn.c_attn', x), 3, -1)
  )
  scores = np.einsum('blhk,bmhk->bhlm', q, k) / q.shape[-1] ** 0.5
  L = x.shape[1]
  scores = np.where(np.tril(np.ones((L, L), bool)), scores, -np.inf)
  p = np.exp(scores - scores.max(-1, keepdims=True))
  p = p / p.sum(-1, keepdims=True)
  y = np.einsum('bhlm,bmhk->blhk', p, v).reshape(x.shape)
  return _conv1d(state, f'{name}.attn.c_proj', y)


def _conv1d(state, name, x):
  return x @ state[f'{name}.weight'] + state[f'{name}.bias']


def _norm(state, name, x):
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
  return x * state[f'{name}.weight'] + state[f'{name}.bias']


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


def llama(state, tokens, keys):
  """Logits BxLxV of a Llama state dict, by the keys of its config.json."""
  state = _Tensors(state, keys['rms_norm_eps'])
  x = state['model.embed_tokens.weight'][tokens]
  L, K = tokens.shape[1], keys['head_dim']
  angle = np.arange(L)[:, None] * _frequencies(keys, K)
  cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
  scaling = keys.get('rope_scaling') or {}
  if scaling.get('rope_type') == 'yarn':
    sharper = 1 + np.log(scaling['factor']) / 10
    cos, sin = sharper * cos, sharper * sin

  def rotate(x):
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

  age = np.arange(L)[:, None] - np.arange(L)
  seen = (age >= 0) & (age < (keys.get('sliding_window') or L))
  for n in range(keys['num_hidden_layers']):
    name = f'model.layers.{n}'
    h = state.rms(f'{name}.input_layernorm', x)
    q, k, v = (
      state.heads(f'{name}.self_attn.{part}_proj', h, K) for part in 'qkv'
    )
    if keys['model_type'] in ('qwen3', 'qwen3_moe'):
      q, k = (
        state.rms(f'{name}.self_attn.{part}_norm', z)
        for part, z in (('q', q), ('k', k))
      )
    k, v = (np.repeat(z, q.shape[2] // k.shape[2], 2) for z in (k, v))
    scores = np.einsum('blhk,bmhk->bhlm', rotate(q), rotate(k)) / K**0.5
    p = np.exp(np.where(seen, scores, -np.inf))
    p = p / p.sum(-1, keepdims=True)
    y = np.einsum('bhlm,bmhk->blhk', p, v).reshape(*tokens.shape, -1)
    x = x + state.linear(f'{name}.self_attn.o_proj', y)
    h = state.rms(f'{name}.post_attention_layernorm', x)
    x = x + _llama_mlp(state, name, h, keys)
  return state.head('model.norm', 'model.embed_tokens', x)


def _frequencies(keys, K):
  """The angles per position of rotary pairs, by their wavelengths."""
  frequencies = keys['rope_theta'] ** (-2 * np.arange(K // 2) / K)
  scaling = keys.get('rope_scaling') or {'factor': 1}
  slow = frequencies / scaling['factor']
  if 'rope_type' not in scaling:
    return slow
  length = scaling['original_max_position_embeddings']
  if scaling['rope_type'] == 'yarn':
    first, last = (
      np.log(length / (2 * np.pi * scaling[f'beta_{end}']))
      / np.log(keys['rope_theta'] ** (2 / K))
      for end in ('fast', 'slow')
    )
    first, last = np.floor(first), np.ceil(last)
    share = np.interp(np.arange(K // 2), [first, last], [1, 0])
    return share * frequencies + (1 - share) * slow
  low, high = scaling['low_freq_factor'], scaling['high_freq_factor']
  own = []
  for fast, slower in zip(frequencies, slow, strict=True):
    wavelength = 2 * np.pi / fast
    share = (length / wavelength - low) / (high - low)
    if wavelength < length / high:
      share = 1
    elif wavelength > length / low:
      share = 0
    own.append(share * fast + (1 - share) * slower)
  return np.array(own)


def _llama_mlp(state, name, h, keys):
  if keys['model_type'] == 'mixtral':
    name, parts = f'{name}.block_sparse_moe', ('w1', 'w3', 'w2')
    return _experts(state, name, h, parts, keys['num_experts_per_tok'])
  if keys['model_type'] == 'qwen3_moe':
    return _qwen_experts(state, f'{name}.mlp', h, keys)
  return state.mlp(f'{name}.mlp', h)


def _qwen_experts(state, name, h, keys):
  parts = 'gate_proj', 'up_proj', 'down_proj'
  chosen, normalized = keys['num_experts_per_tok'], keys['norm_topk_prob']
  return _experts(state, name, h, parts, chosen, normalized)


def _experts(state, name, h, parts, J, normalized=True):
  """Token by token: the J experts of the largest probabilities."""
  z, y = state.linear(f'{name}.gate', h), np.zeros_like(h)
  p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  for at in np.ndindex(*h.shape[:2]):
    chosen = np.argsort(-p[at])[:J]
    total = p[at][chosen].sum() if normalized else 1
    for e in chosen:
      gate, up, down = (f'{name}.experts.{e}.{part}' for part in parts)
      units = _silu(state.linear(gate, h[at])) * state.linear(up, h[at])
      y[at] += p[at][e] / total * state.linear(down, units)
  return y


def mamba2(state, tokens, keys):
  """Logits BxLxV of a Mamba-2 state dict of transformers."""
  state = _Tensors(state, keys['layer_norm_epsilon'])
  H, P, N, G = (
    keys[k] for k in ('num_heads', 'head_dim', 'state_size', 'n_groups')
  )
  x = state['backbone.embeddings.weight'][tokens]
  for n in range(keys['num_hidden_layers']):
    name = f'backbone.layers.{n}'
    u = state.linear(f'{name}.mixer.in_proj', state.rms(f'{name}.norm', x))
    gate, mixed, dt = np.split(u, [H * P, u.shape[-1] - H], -1)
    mixed = state.convolve(f'{name}.mixer.conv1d', mixed)
    v, k, q = np.split(mixed, [H * P, H * P + G * N], -1)
    v = v.reshape(*tokens.shape, H, P)
    k, q = (
      np.repeat(z.reshape(*tokens.shape, G, N), H // G, 2) for z in (k, q)
    )
    dt = np.logaddexp(dt + state[f'{name}.mixer.dt_bias'], 0)
    a = np.exp(-dt * np.exp(state[f'{name}.mixer.A_log']))
    S, y = np.zeros((len(tokens), H, N, P)), np.zeros_like(v)
    for t in range(tokens.shape[1]):
      write = k[:, t, :, :, None] * (dt[:, t, :, None] * v[:, t])[:, :, None]
      S = a[:, t, :, None, None] * S + write
      y[:, t] = np.einsum('bhnp,bhn->bhp', S, q[:, t])
    y = y + state[f'{name}.mixer.D'][:, None] * v
    y = y.reshape(*tokens.shape, G, -1) * _silu(gate).reshape(
      *tokens.shape, G, -1
    )
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + keys['layer_norm_epsilon'])
    y = y.reshape(*tokens.shape, -1) * state[f'{name}.mixer.norm.weight']
    x = x + state.linear(f'{name}.mixer.out_proj', y)
  return state.head('backbone.norm_f', 'backbone.embeddings', x)


def mamba(state, tokens, keys):
  """Logits BxLxV of a Mamba state dict of transformers."""
  state = _Tensors(state, keys['layer_norm_epsilon'])
  N = keys['state_size']
  x = state['backbone.embeddings.weight'][tokens]
  for n in range(keys['num_hidden_layers']):
    name = f'backbone.layers.{n}'
    u = state.linear(f'{name}.mixer.in_proj', state.rms(f'{name}.norm', x))
    u, gate = np.split(u, 2, -1)
    u = state.convolve(f'{name}.mixer.conv1d', u)
    R = state[f'{name}.mixer.dt_proj.weight'].shape[1]
    dt, k, q = np.split(state.linear(f'{name}.mixer.x_proj', u), [R, R + N], -1)
    dt = np.logaddexp(state.linear(f'{name}.mixer.dt_proj', dt), 0)
    rate = np.exp(state[f'{name}.mixer.A_log'])
    h, y = np.zeros((*u[:, 0].shape, N)), np.zeros_like(u)
    for t in range(tokens.shape[1]):
      write = (dt[:, t] * u[:, t])[..., None] * k[:, t, None]
      h = np.exp(-dt[:, t, :, None] * rate) * h + write
      y[:, t] = np.einsum('bsn,bn->bs', h, q[:, t])
    y = (y + state[f'{name}.mixer.D'] * u) * _silu(gate)
    x = x + state.linear(f'{name}.mixer.out_proj', y)
  return state.head('backbone.norm_f', 'backbone.embeddings', x)


def xlstm(state, tokens, keys):
  """Logits BxLxV of an xLSTM state dict of transformers."""
  state = _Tensors(state, keys['norm_eps'])
  H, cap = keys['num_heads'], keys['gate_soft_cap']
  x = state['backbone.embeddings.weight'][tokens]
  for n in range(keys['num_blocks']):
    name = f'backbone.blocks.{n}'
    u = state.rms(f'{name}.norm_mlstm', x)
    cell = f'{name}.mlstm_layer'
    q, k, v = (
      state.linear(f'{cell}.{part}', u).reshape(*tokens.shape, H, -1)
      for part in 'qkv'
    )
    i, f = (
      cap * np.tanh(state.linear(f'{cell}.{part}gate_preact', u) / cap)
      for part in 'if'
    )
    logf = -np.logaddexp(0, -f)
    C, y = np.zeros((len(tokens), *q.shape[2:], v.shape[-1])), np.zeros_like(v)
    norm, m = np.zeros(C.shape[:-1]), np.zeros((len(tokens), H))
    for t in range(tokens.shape[1]):
      m, before = np.maximum(logf[:, t] + m, i[:, t]), m
      keep = np.exp(logf[:, t] + before - m)[..., None]
      write = np.exp(i[:, t] - m)[..., None] * k[:, t]
      C = keep[..., None] * C + write[..., None] * v[:, t, :, None]
      norm = keep * norm + write
      now = q[:, t] / q.shape[-1] ** 0.5
      weight = np.maximum(abs((norm * now).sum(-1)), np.exp(-m)) + keys['eps']
      y[:, t] = np.einsum('bhkp,bhk->bhp', C, now) / weight[..., None]
    y = y - y.mean(-1, keepdims=True)
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + keys['norm_eps'])
    y = y.reshape(*tokens.shape, -1) * state[f'{cell}.multihead_norm.weight']
    y = y / (1 + np.exp(-state.linear(f'{cell}.ogate_preact', u)))
    x = x + state.linear(f'{cell}.out_proj', y)
    u, ffn = state.rms(f'{name}.norm_ffn', x), f'{name}.ffn'
    gate, up = (state.linear(f'{ffn}.proj_{p}', u) for p in ('up_gate', 'up'))
    x = x + state.linear(f'{ffn}.proj_down', _silu(gate) * up)
  cap = keys['output_logit_soft_cap']
  logits = state.head('backbone.out_norm', 'backbone.embeddings', x)
  return cap * np.tanh(logits / cap)


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


def recurrent_gemma(state, tokens, keys):
  """Logits BxLxV of a RecurrentGemma with heads of 8, by its config.json."""
  state = _Tensors(state, keys['rms_norm_eps'])
  kinds, cap = keys['block_types'], keys['logits_soft_cap']
  D = keys['hidden_size']
  embedding = state['model.embed_tokens.weight']
  x = embedding[tokens] * float(ml_dtypes.bfloat16(D**0.5))

  def norm(name, x):
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + keys['rms_norm_eps'])
    return x * (1 + state[f'{name}.weight'])

  for n in range(keys['num_hidden_layers']):
    name = f'model.layers.{n}'
    block = _recurrent if kinds[n % len(kinds)] == 'recurrent' else _local
    h = norm(f'{name}.temporal_pre_norm', x)
    x = x + block(state, f'{name}.temporal_block', h, keys)
    h = norm(f'{name}.channel_pre_norm', x)
    name = f'{name}.mlp_block'
    gate, up = (state.linear(f'{name}.{k}_proj', h) for k in ('gate', 'up'))
    x = x + state.linear(f'{name}.down_proj', _gelu(gate) * up)
  return cap * np.tanh(norm('model.final_norm', x) @ embedding.T / cap)


def _gelu(x):
  return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _sigmoid(x):
  return 1 / (1 + np.exp(-x))


def _recurrent(state, name, h, keys):
  gate = _gelu(state.linear(f'{name}.linear_y', h))
  raw, L = state.linear(f'{name}.linear_x', h), h.shape[1]
  taps, u = state[f'{name}.conv_1d.weight'][:, 0], np.zeros_like(raw)
  for d in range(taps.shape[1]):
    u[:, d:] += taps[:, -1 - d] * raw[:, : L - d]
  u = u + state[f'{name}.conv_1d.bias']
  by_head = u.reshape(*u.shape[:2], keys['num_attention_heads'], -1)
  r, i = (
    _sigmoid(
      np.einsum('blhi,hio->blho', by_head, state[f'{name}.rg_lru.{k}_weight'])
      + state[f'{name}.rg_lru.{k}_bias']
    ).reshape(u.shape)
    for k in ('recurrent_gate', 'input_gate')
  )
  rate = 8 * np.logaddexp(state[f'{name}.rg_lru.recurrent_param'], 0)
  a, state_t, y = np.exp(-rate * r), 0, np.zeros_like(u)
  for t in range(L):
    share = np.sqrt(1 - a[:, t] ** 2) if t else 1
    state_t = a[:, t] * state_t + share * i[:, t] * u[:, t]
    y[:, t] = state_t
  return state.linear(f'{name}.linear_out', y * gate)


def _local(state, name, h, keys):
  L, K = h.shape[1], keys['hidden_size'] // keys['num_attention_heads']
  R = int(K * keys['partial_rotary_factor'])
  q, k, v = (state.heads(f'{name}.{part}_proj', h, K) for part in 'qkv')
  angle = np.arange(L)[:, None] * keys['rope_theta'] ** (
    -2 * np.arange(R // 2) / R
  )
  cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]

  def rotate(x):
    a, b, rest = np.split(x, [R // 2, R], -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos, rest], -1)

  k, v = (np.repeat(z, q.shape[2] // k.shape[2], 2) for z in (k, v))
  age = np.arange(L)[:, None] - np.arange(L)
  seen = (age >= 0) & (age < keys['attention_window_size'])
  scores = np.einsum('blhk,bmhk->bhlm', rotate(q), rotate(k)) / K**0.5
  p = np.exp(np.where(seen, scores, -np.inf))
  p = p / p.sum(-1, keepdims=True)
  y = np.einsum('bhlm,bmhk->blhk', p, v).reshape(*h.shape[:2], -1)
  return state.linear(f'{name}.o_proj', y)


def qwen3_next(state, tokens, keys):
  """Logits BxLxV of a Qwen3-Next, by its config.json."""
  state = _Tensors(state, keys['rms_norm_eps'])
  x = state['model.embed_tokens.weight'][tokens]

  def norm(name, x):
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + keys['rms_norm_eps'])
    return x * (1 + state[f'{name}.weight'])

  for n, kind in enumerate(keys['layer_types']):
    name = f'model.layers.{n}'
    h = norm(f'{name}.input_layernorm', x)
    if kind == 'full_attention':
      x = x + _gated_attention(state, f'{name}.self_attn', h, norm, keys)
    else:
      x = x + _gated_delta(state, f'{name}.linear_attn', h, keys)
    h = norm(f'{name}.post_attention_layernorm', x)
    x = x + _qwen_experts(state, f'{name}.mlp', h, keys)
    own = f'{name}.mlp.shared_expert'
    gate = _sigmoid(state.linear(f'{own}_gate', h))
    x = x + gate * state.mlp(own, h)
  return norm('model.norm', x) @ state['lm_head.weight'].T


def _gated_attention(state, name, h, norm, keys):
  L, K = h.shape[1], keys['head_dim']
  R = int(K * keys['partial_rotary_factor'])
  both = state.heads(f'{name}.q_proj', h, 2 * K)
  q, gate = both[..., :K], both[..., K:]
  k, v = (state.heads(f'{name}.{part}_proj', h, K) for part in 'kv')
  q, k = norm(f'{name}.q_norm', q), norm(f'{name}.k_norm', k)
  angle = np.arange(L)[:, None] * keys['rope_theta'] ** (
    -2 * np.arange(R // 2) / R
  )
  cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]

  def rotate(x):
    a, b, rest = np.split(x, [R // 2, R], -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos, rest], -1)

  k, v = (np.repeat(z, q.shape[2] // k.shape[2], 2) for z in (k, v))
  scores = np.einsum('blhk,bmhk->bhlm', rotate(q), rotate(k)) / K**0.5
  p = np.exp(np.where(np.tril(np.ones((L, L), bool)), scores, -np.inf))
  p = p / p.sum(-1, keepdims=True)
  y = np.einsum('bhlm,bmhk->blhk', p, v) * _sigmoid(gate)
  return state.linear(f'{name}.o_proj', y.reshape(*h.shape[:2], -1))


def _gated_delta(state, name, h, keys):
  B, L = h.shape[:2]
  G, H = keys['linear_num_key_heads'], keys['linear_num_value_heads']
  K, P = keys['linear_key_head_dim'], keys['linear_value_head_dim']
  qkvz = state.linear(f'{name}.in_proj_qkvz', h).reshape(B, L, G, -1)
  q, k, v, z = np.split(qkvz, [K, 2 * K, 2 * K + H // G * P], -1)
  ba = state.linear(f'{name}.in_proj_ba', h).reshape(B, L, G, -1)
  b, raw = (x.reshape(B, L, H) for x in np.split(ba, 2, -1))
  mixed = np.concatenate([x.reshape(B, L, -1) for x in (q, k, v)], -1)
  mixed = state.convolve(f'{name}.conv1d', mixed)
  q, k, v = np.split(mixed, [G * K, 2 * G * K], -1)
  q, k = (np.repeat(x.reshape(B, L, G, K), H // G, 2) for x in (q, k))
  q, k = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
  v, z, b = v.reshape(B, L, H, P), z.reshape(B, L, H, P), _sigmoid(b)
  rate = np.exp(state[f'{name}.A_log'])
  a = np.exp(-rate * np.logaddexp(raw + state[f'{name}.dt_bias'], 0))
  S, y = np.zeros((B, H, K, P)), np.zeros_like(v)
  for t in range(L):
    S = a[:, t, :, None, None] * S
    error = v[:, t] - np.einsum('bhkp,bhk->bhp', S, k[:, t])
    S = S + k[:, t, :, :, None] * (b[:, t, :, None] * error)[:, :, None]
    y[:, t] = np.einsum('bhkp,bhk->bhp', S, q[:, t]) / K**0.5
  y = state.rms(f'{name}.norm', y) * _silu(z)
  return state.linear(f'{name}.out_proj', y.reshape(B, L, -1))


def kimi_linear(state, tokens, keys):
  """Logits BxLxV of a Kimi Linear, by its config.json."""
  state = _Tensors(state, keys['rms_norm_eps'])
  x = state['model.embed_tokens.weight'][tokens]
  kinds = zip(keys['layer_types'], keys['mlp_layer_types'], strict=True)
  for n, (kind, mlp) in enumerate(kinds):
    name = f'model.layers.{n}'
    run = _latent if kind == 'full_attention' else _kimi_delta
    h = state.rms(f'{name}.input_layernorm', x)
    x = x + run(state, f'{name}.self_attn', h, keys)
    h = state.rms(f'{name}.post_attention_layernorm', x)
    if mlp == 'dense':
      x = x + state.mlp(f'{name}.mlp', h)
    else:
      x = x + _kimi_experts(state, f'{name}.block_sparse_moe', h, keys)
  return state.head('model.norm', 'model.embed_tokens', x)


def _latent(state, name, h, keys):
  """Latent attention: the keys of a head, and those of all heads."""
  (B, L, _), H = h.shape, keys['num_attention_heads']
  K, R = keys['qk_nope_head_dim'], keys['qk_rope_head_dim']

  def norm(part, x):
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x * state[f'{name}.{part}_a_layernorm.weight']

  q = h
  if keys['q_lora_rank']:
    q = norm('q', state.linear(f'{name}.q_a_proj', h))
  part = 'q_b_proj' if keys['q_lora_rank'] else 'q_proj'
  q = state.linear(f'{name}.{part}', q).reshape(B, L, H, K + R)
  both = state.linear(f'{name}.kv_a_proj_with_mqa', h)
  latent, shared = np.split(both, [keys['kv_lora_rank']], -1)
  kv = state.linear(f'{name}.kv_b_proj', norm('kv', latent))
  k, v = np.split(kv.reshape(B, L, H, -1), [K], -1)
  scores = np.einsum('blhk,bmhk->bhlm', q[..., :K], k)
  scores = scores + np.einsum('blhk,bmk->bhlm', q[..., K:], shared)
  scores = np.where(np.tril(np.ones((L, L), bool)), scores, -np.inf)
  p = np.exp(scores / (K + R) ** 0.5)
  p = p / p.sum(-1, keepdims=True)
  y = np.einsum('bhlm,bmhp->blhp', p, v)
  return state.linear(f'{name}.o_proj', y.reshape(B, L, -1))


def _kimi_delta(state, name, h, keys):
  (B, L, _), H = h.shape, keys['linear_num_heads']
  q, k, v = (
    state.convolve(
      f'{name}.{part}_conv1d', state.linear(f'{name}.{part}_proj', h)
    ).reshape(B, L, H, -1)
    for part in 'qkv'
  )
  q, k = (z / np.sqrt((z**2).sum(-1, keepdims=True) + 1e-6) for z in (q, k))
  b = _sigmoid(state.linear(f'{name}.b_proj', h))
  f, g = (
    state.linear(f'{name}.{x}_b_proj', state.linear(f'{name}.{x}_a_proj', h))
    for x in 'fg'
  )
  step = np.logaddexp(f + state[f'{name}.dt_bias'], 0).reshape(q.shape)
  a = np.exp(-np.exp(state[f'{name}.A_log']) * step)
  S, y = np.zeros((B, H, q.shape[-1], v.shape[-1])), np.zeros_like(v)
  for t in range(L):
    S = a[:, t, ..., None] * S
    error = v[:, t] - np.einsum('bhkp,bhk->bhp', S, k[:, t])
    S = S + k[:, t, ..., None] * (b[:, t, :, None] * error)[:, :, None]
    y[:, t] = np.einsum('bhkp,bhk->bhp', S, q[:, t]) / q.shape[-1] ** 0.5
  y = state.rms(f'{name}.o_norm', y) * _sigmoid(g).reshape(y.shape)
  return state.linear(f'{name}.o_proj', y.reshape(B, L, -1))


def _kimi_experts(state, name, h, keys):
  """Token by token: the best groups, then the best experts of these."""
  J, G = keys['num_experts_per_token'], keys['num_expert_group']
  p, y = _sigmoid(state.linear(f'{name}.gate', h)), np.zeros_like(h)
  bias = state[f'{name}.gate.e_score_correction_bias']
  for at in np.ndindex(*h.shape[:2]):
    groups = np.split(p[at] + bias, G)
    order = np.argsort([-np.sort(group)[-2:].sum() for group in groups])
    for group in order[keys['topk_group'] :]:
      groups[group][:] = -np.inf
    chosen = np.argsort(-np.concatenate(groups))[:J]
    gates = p[at][chosen]
    if keys['moe_renormalize']:
      gates = gates / gates.sum()
    for e, g in zip(chosen, keys['routed_scaling_factor'] * gates, strict=True):
      one = f'{name}.experts.{e}'
      units = _silu(state.linear(f'{one}.w1', h[at]))
      units = units * state.linear(f'{one}.w3', h[at])
      y[at] += g * state.linear(f'{one}.w2', units)
  return y + state.mlp(f'{name}.shared_experts', h)
