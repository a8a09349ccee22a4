"""A model of residual blocks in PyTorch, eager, from a file of launch.export.

Residual blocks of SimpleRNN's preset 'improved' and a SwiGLU MLP, with RMS
norms without a scale; see rnn_jax/cells/simple_rnn.py and models/blocks.py for
the equations. It reads tokens in one pass, whose recurrence is a loop, or one
by one. Nothing here imports jax: a server of it is a process of PyTorch's own.
"""

import os
from collections.abc import Sequence
from typing import Any

import torch
from safetensors import torch as safetensors_torch
from torch.nn import functional

EPSILON = 1e-6  # of the norms
BLOCKS = 'stack.blocks.'  # of the names of the layers' arrays, one per layer
MLP = 'gate', 'up', 'down'
State = list[tuple[torch.Tensor, torch.Tensor]]


class Layer(torch.nn.Module):
  """A block: (x BxLxD, its state) to the same after L tokens.

  The state is the memory BxHxKxP, and the last inputs of the convolution.
  """

  def __init__(self, weights: dict[str, torch.Tensor], heads: int) -> None:
    super().__init__()
    self.taps = torch.nn.Parameter(weights['cell.taps'])  # WxE
    self.gate_bias = torch.nn.Parameter(weights['cell.gate_bias'])
    self.projection = _linear(weights['cell.projection.kernel'])
    self.output = _linear(weights['cell.output.kernel'])
    self.mlp = torch.nn.ModuleDict(
      {name: _linear(weights[f'mlp.{name}.kernel']) for name in MLP}
    )
    gates = len(self.gate_bias) // heads
    self.heads = heads
    self.value_width = self.output.in_features // heads
    channels = self.projection.out_features // heads
    self.key_width = (channels - gates - 2 * self.value_width) // 2
    keys = self.key_width
    self.widths = [keys, keys, gates, self.value_width, self.value_width]

  def init_state(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns zeros."""
    taps, channels = self.taps.shape
    memory = batch, self.heads, self.key_width, self.value_width
    return torch.zeros(memory), torch.zeros(batch, taps - 1, channels)

  def forward(
    self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
  ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    y, state = self._mix(_norm(x), state)
    x = x + y
    h = _norm(x)
    h = functional.silu(self.mlp['gate'](h)) * self.mlp['up'](h)
    return x + self.mlp['down'](h), state

  def _mix(self, x, state):
    memory, inputs = state
    batch, length, _ = x.shape
    by_heads = batch, length, self.heads, -1
    parts = self.projection(x).view(by_heads).split(self.widths, -1)
    query, key, gate, value, output_gate = parts
    joined = torch.cat([query, key, value], -1).view(batch, length, -1)
    joined = torch.cat([inputs, joined], 1)
    windows = joined.unfold(1, len(self.taps), 1)  # BxLxExW, the newest last
    mixed = (windows * self.taps.flip(0).T).sum(-1)
    parts = functional.silu(mixed).view(by_heads)
    q, k, v = parts.split(
      [self.key_width, self.key_width, self.value_width], -1
    )
    a = torch.sigmoid(gate + self.gate_bias.view(self.heads, -1))
    outputs = []
    steps = zip(*(part.unbind(1) for part in (q, k, v, a)), strict=True)
    for q_t, k_t, v_t, a_t in steps:
      memory = torch.addcmul(
        a_t.unsqueeze(-1) * memory, k_t.unsqueeze(-1), v_t.unsqueeze(-2)
      )
      outputs.append((q_t.unsqueeze(-2) @ memory).squeeze(-2))
    y = _norm(torch.stack(outputs, 1)) * functional.silu(output_gate)
    y = self.output(y.reshape(batch, length, -1))
    return y, (memory, joined[:, length:])


class LanguageModel(torch.nn.Module):
  """Embedding, layers, head; (tokens BxL, state) to (logits BxV, state)."""

  def __init__(self, weights: dict[str, torch.Tensor], heads: int) -> None:
    super().__init__()
    stacked = {
      name.removeprefix(BLOCKS): x
      for name, x in weights.items()
      if name.startswith(BLOCKS)
    }
    count = len(next(iter(stacked.values())))
    self.layers = torch.nn.ModuleList(
      Layer({name: x[n].clone() for name, x in stacked.items()}, heads)
      for n in range(count)
    )
    self.embedding = torch.nn.Embedding.from_pretrained(
      weights['embedding.embedding']
    )
    self.head = _linear(weights['head.kernel'], weights['head.bias'])

  def init_state(self, batch: int = 1) -> State:
    """Returns the state before a text."""
    return [layer.init_state(batch) for layer in self.layers]

  def forward(
    self, tokens: torch.Tensor, state: State
  ) -> tuple[torch.Tensor, State]:
    x, new = self.embedding(tokens), []
    for layer, old in zip(self.layers, state, strict=True):
      x, after = layer(x, old)
      new.append(after)
    return self.head(_norm(x[:, -1])), new


def load(path: str | os.PathLike, heads: int) -> LanguageModel:
  """Returns the model of a .safetensors file."""
  weights: dict[str, Any] = safetensors_torch.load_file(path)
  return LanguageModel(weights, heads).eval().requires_grad_(False)


@torch.inference_mode()
def generate(
  network: LanguageModel, prompt: Sequence[int], count: int
) -> list[int]:
  """Returns `count` greedy tokens after a prompt, one step each."""
  logits, state = network(torch.tensor([prompt]), network.init_state())
  made = [int(logits.argmax(-1))]
  while len(made) < count:
    logits, state = network(torch.tensor([made[-1:]]), state)
    made.append(int(logits.argmax(-1)))
  return made


def _norm(x):
  return functional.rms_norm(x, x.shape[-1:], eps=EPSILON)


def _linear(kernel, bias=None):
  """Returns the layer of a DxE kernel and a bias."""
  linear = torch.nn.Linear(*kernel.shape, bias=bias is not None)
  linear.weight = torch.nn.Parameter(kernel.T.contiguous())
  if bias is not None:
    linear.bias = torch.nn.Parameter(bias)
  return linear
