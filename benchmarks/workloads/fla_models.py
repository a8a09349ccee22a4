"""Models of flash-linear-attention in plain PyTorch, to be trained on a CPU.

Their layers need a GPU, but the package has each recurrence step by step, which
a CPU runs too. The layers around it are written here from the equations of the
papers that the importer names (rnn_jax/interop/formats/hf/architectures), with
the names and the shapes of published folders.
"""

import json
import os
import pathlib
import types
from typing import Any

import safetensors.torch
import torch
from fla.ops.delta_rule import naive as delta_rule
from fla.ops.gated_delta_rule import naive as gated_delta_rule
from fla.ops.generalized_delta_rule.dplr import naive as dplr
from fla.ops.gla import naive as gla
from torch import nn
from torch.nn import functional
from transformers.loss import loss_utils

Keys = dict[str, Any]


class Convolution(nn.Conv1d):
  """A causal convolution of each channel of BxLxE, then a SiLU."""

  def __init__(self, width: int, taps: int):
    super().__init__(width, width, taps, groups=width, bias=False)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(x.mT, (self.kernel_size[0] - 1, 0))
    return functional.silu(super().forward(padded)).mT


class Delta(nn.Module):
  """Gated DeltaNet, or DeltaNet: S = a S, then S += b k (v - S^T k)^T."""

  def __init__(self, keys: Keys):
    super().__init__()
    D, self.heads = keys['hidden_size'], keys['num_heads']
    self.gated = keys['model_type'] == 'gated_deltanet'
    self.most = 2 if keys.get('allow_neg_eigval') else 1
    inner = self.heads * keys['head_dim'] if self.gated else D
    values = int((inner if self.gated else D) * keys.get('expand_v', 1))
    for name, width in {'q': inner, 'k': inner, 'v': values}.items():
      setattr(self, f'{name}_proj', nn.Linear(D, width, bias=False))
      setattr(self, f'{name}_conv1d', Convolution(width, keys['conv_size']))
    self.b_proj = nn.Linear(D, self.heads, bias=False)
    self.o_norm = nn.RMSNorm(values // self.heads, keys['norm_eps'])
    self.o_proj = nn.Linear(values, D, bias=False)
    if self.gated:
      self.a_proj = nn.Linear(D, self.heads, bias=False)
      self.g_proj = nn.Linear(D, values, bias=False)
      self.A_log = nn.Parameter(torch.rand(self.heads))
      self.dt_bias = nn.Parameter(torch.rand(self.heads))

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (
      getattr(self, f'{part}_conv1d')(
        getattr(self, f'{part}_proj')(x)
      ).unflatten(-1, (self.heads, -1))
      for part in 'qkv'
    )
    q, k = (
      z * (z.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for z in (q, k)
    )
    b = self.most * self.b_proj(x).sigmoid()
    if self.gated:
      raw = functional.softplus(self.a_proj(x) + self.dt_bias)
      y, _ = gated_delta_rule.naive_recurrent_gated_delta_rule(
        q, k, v, b, -self.A_log.exp() * raw
      )
      y = self.o_norm(y).flatten(2) * functional.silu(self.g_proj(x))
    else:
      by_head = (z.transpose(1, 2) for z in (q, k, v, b))
      y, _ = delta_rule.delta_rule_recurrence(*by_head)
      y = self.o_norm(y.transpose(1, 2)).flatten(2)
    return self.o_proj(y)


class GLA(nn.Module):
  """Gated Linear Attention: S = diag(a) S + k v^T."""

  def __init__(self, keys: Keys):
    super().__init__()
    D, self.heads = keys['hidden_size'], keys['num_heads']
    K, P = (int(D * keys[f'expand_{x}']) for x in 'kv')
    for name, width in {'q': K, 'k': K, 'v': P, 'g': P}.items():
      setattr(self, f'{name}_proj', nn.Linear(D, width, bias=False))
    self.gk_proj = nn.Sequential(nn.Linear(D, 16, bias=False), nn.Linear(16, K))
    self.g_norm_swish_gate = nn.RMSNorm(P // self.heads, keys['norm_eps'])
    self.o_proj = nn.Linear(P, D, bias=False)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    q, k, v, g, raw = (
      getattr(self, f'{part}_proj')(x).unflatten(-1, (self.heads, -1))
      for part in ('q', 'k', 'v', 'g', 'gk')
    )
    y, _ = gla.naive_recurrent_gla(q, k, v, functional.logsigmoid(raw) / 16)
    y = self.g_norm_swish_gate(y) * functional.silu(g)
    return self.o_proj(y.flatten(2))


class LowRank(nn.Module):
  """W2 f(W1 x) + b."""

  def __init__(self, D: int, rank: int, out: int, between: Any, bias=True):
    super().__init__()
    self.lora = nn.Sequential(
      nn.Linear(D, rank, bias=False), between, nn.Linear(rank, out, bias=bias)
    )

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return self.lora(x)


def earlier(x: torch.Tensor) -> torch.Tensor:
  """The step before less this one, of BxLxD."""
  return functional.pad(x, (0, 0, 1, 0))[:, :-1] - x


class RWKV7(nn.Module):
  """S = (diag(w) - (a kk) kk^T) S + k v^T, with the first layer's values."""

  def __init__(self, keys: Keys, n: int):
    super().__init__()
    D, self.width = keys['hidden_size'], keys['head_dim']
    P, H = keys['value_dim'], D // self.width
    for part in 'rwkvag':
      setattr(self, f'x_{part}', nn.Parameter(torch.rand(1, 1, D)))
    self.k_k = nn.Parameter(torch.rand(D))
    self.k_a = nn.Parameter(torch.rand(D))
    self.r_k = nn.Parameter(torch.randn(H, self.width))
    self.r_proj, self.k_proj = (nn.Linear(D, D, bias=False) for _ in 'rk')
    self.v_proj = nn.Linear(D, P, bias=False)
    self.o_proj = nn.Linear(P, D, bias=False)
    rank = {x: keys[f'{x}_low_rank_dim'] for x in ('decay', 'a', 'gate', 'v')}
    self.w_lora = LowRank(D, rank['decay'], D, nn.Tanh())
    self.a_lora = LowRank(D, rank['a'], D, nn.Identity())
    self.g_lora = LowRank(D, rank['gate'], P, nn.Sigmoid(), bias=False)
    if n:
      self.v_lora = LowRank(D, rank['v'], P, nn.Identity())
    epsilon = self.width * keys['norm_eps']
    self.g_norm = nn.GroupNorm(H, P, epsilon)

  def forward(self, x: torch.Tensor, first: Any) -> tuple[Any, torch.Tensor]:
    shift = earlier(x)
    r, w, k, v, a, g = (
      x + shift * getattr(self, f'x_{part}') for part in 'rwkvag'
    )
    r, k, w, a = self.r_proj(r), self.k_proj(k), self.w_lora(w), self.a_lora(a)
    g, source, v, a = self.g_lora(g), v, self.v_proj(v), a.sigmoid()
    if first is None:
      first = v
    else:
      v = v + (first - v) * self.v_lora(source).sigmoid()
    kk = (k * self.k_k).unflatten(-1, (-1, self.width))
    kk = kk * (kk.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    k = k * (1 + (a - 1) * self.k_a)
    H, decay = kk.shape[2], -(-0.5 * torch.ones(())).exp() * w.sigmoid()
    r, decay, k, v, a = (z.unflatten(-1, (H, -1)) for z in (r, decay, k, v, a))
    scaled = r * self.width**0.5  # they divide it by that
    by_head = (z.transpose(1, 2) for z in (scaled, k, v, -kk, kk * a, decay))
    o, _ = dplr.dplr_recurrence(*by_head)
    o = self.g_norm(o.transpose(1, 2).flatten(2).flatten(0, 1))
    o = o.view(v.shape) + (r * k * self.r_k).sum(-1, keepdim=True) * v
    return first, self.o_proj(o.flatten(2) * g)


class ChannelMix(nn.Module):
  """V relu(K (x + mu (the step before - x)))^2."""

  def __init__(self, D: int, inner: int):
    super().__init__()
    self.x_k = nn.Parameter(torch.rand(D))
    self.key = nn.Linear(D, inner, bias=False)
    self.value = nn.Linear(inner, D, bias=False)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return self.value(self.key(x + earlier(x) * self.x_k).relu().square())


class MLP(nn.Module):
  """W (silu(U x) * V x)."""

  def __init__(self, D: int, inner: int):
    super().__init__()
    self.gate_proj = nn.Linear(D, inner, bias=False)
    self.up_proj = nn.Linear(D, inner, bias=False)
    self.down_proj = nn.Linear(inner, D, bias=False)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


CELLS = {'gated_deltanet': Delta, 'delta_net': Delta, 'gla': GLA}


class Layer(nn.Module):
  """A cell and an MLP, each after a norm, added to their inputs."""

  def __init__(self, keys: Keys, n: int):
    super().__init__()
    D, epsilon, kind = (
      keys[x] for x in ('hidden_size', 'norm_eps', 'model_type')
    )
    self.rwkv = kind == 'rwkv7'
    if self.rwkv:
      if n == 0:
        self.pre_norm = nn.LayerNorm(D, epsilon)
      self.attn_norm, self.ffn_norm = (nn.LayerNorm(D, epsilon) for _ in 'af')
      self.attn = RWKV7(keys, n)
      self.ffn = ChannelMix(D, keys['intermediate_size'])
    else:
      self.attn_norm, self.mlp_norm = (nn.RMSNorm(D, epsilon) for _ in 'am')
      self.attn = CELLS[kind](keys)
      self.mlp = MLP(D, keys['intermediate_size'])

  def forward(self, x: torch.Tensor, first: Any) -> tuple[torch.Tensor, Any]:
    if not self.rwkv:
      x = x + self.attn(self.attn_norm(x))
      return x + self.mlp(self.mlp_norm(x)), None
    if hasattr(self, 'pre_norm'):
      x = self.pre_norm(x)
    first, y = self.attn(self.attn_norm(x), first)
    x = x + y
    return x + self.ffn(self.ffn_norm(x)), first


class Stack(nn.Module):
  """The embedding, the layers and the last norm."""

  def __init__(self, keys: Keys):
    super().__init__()
    D = keys['hidden_size']
    norm = nn.LayerNorm if keys['model_type'] == 'rwkv7' else nn.RMSNorm
    self.embeddings = nn.Embedding(keys['vocab_size'], D)
    self.layers = nn.ModuleList(
      Layer(keys, n) for n in range(keys['num_hidden_layers'])
    )
    self.norm = norm(D, keys['norm_eps'])

  def forward(self, ids: torch.Tensor) -> torch.Tensor:
    x, first = self.embeddings(ids), None
    for layer in self.layers:
      x, first = layer(x, first)
    return self.norm(x)


class Model(nn.Module):
  """A language model by the keys of its config.json."""

  def __init__(self, keys: Keys):
    super().__init__()
    self.keys = keys
    self.model = Stack(keys)
    self.lm_head = nn.Linear(
      keys['hidden_size'], keys['vocab_size'], bias=False
    )

  def forward(
    self,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: int,
  ) -> types.SimpleNamespace:
    """Returns the loss, as models of transformers do; rows end with padding."""
    del attention_mask  # no step depends on later ones
    logits = self.lm_head(self.model(input_ids))
    loss = loss_utils.ForCausalLMLoss(
      logits, labels, self.keys['vocab_size'], num_items_in_batch
    )
    return types.SimpleNamespace(loss=loss)

  def save_pretrained(self, folder: str | os.PathLike) -> None:
    """Writes config.json and model.safetensors."""
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / 'config.json').write_text(json.dumps(self.keys))
    safetensors.torch.save_file(self.state_dict(), path / 'model.safetensors')
