"""SimpleRNN in PyTorch, written from the published equations.

    S_t = diag(g_t) S_{t-1} + k_t v_t^T        y_t = S_t^T q_t

Four ways of writing the loop over time, with the same numbers. 'indexed', the
published way: all products k_t v_t^T are made first, BxLxKxP, and each step
takes its own by index; the gradient of an index is as large as what was
indexed, so that the backward pass grows with the square of L. 'history': each
step besides writes its state by index into all states, BxLxKxP, which are read
at the end; an indexed write has as large a gradient again. 'careful': the
state is a variable, inputs are unbound once, and outputs stacked once.
'compiled': the careful loop over BLOCK steps by torch.compile, block after
block. All others are eager. torch.compile unrolls loops, and 64 steps of a
whole model already take minutes to compile.
"""

import dataclasses
import functools

import torch
from torch.utils import checkpoint

BLOCK = 16  # steps that are compiled together


@dataclasses.dataclass(frozen=True)
class Options:
  """Sizes, and how the same numbers are computed."""

  loop: str = 'careful'  # or 'indexed', 'history', 'compiled'
  fused: bool = False  # one projection rather than four
  checkpointed: bool = False  # each layer runs again in the backward pass
  vocabulary: int = 512
  width: int = 128
  key_width: int = 32
  value_width: int = 64
  layers: int = 2


class Layer(torch.nn.Module):
  """One SimpleRNN: (x BxLxD, state BxKxP) to (y BxLxD, state)."""

  def __init__(self, options: Options):
    super().__init__()
    self.loop = LOOPS[options.loop]
    keys, values = options.key_width, options.value_width
    self.widths = [keys, keys, keys, values]  # q, k, g, v
    projected = [sum(self.widths)] if options.fused else self.widths
    self.projections = torch.nn.ModuleList(
      torch.nn.Linear(options.width, width) for width in projected
    )
    self.output = torch.nn.Linear(values, options.width)
    for linear in (*self.projections, self.output):
      torch.nn.init.xavier_uniform_(linear.weight)

  def forward(
    self, x: torch.Tensor, state: torch.Tensor
  ) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [projection(x) for projection in self.projections]
    if len(parts) == 1:
      parts = parts[0].split(self.widths, -1)
    q, k, g, v = parts
    y, state = self.loop(q, torch.sigmoid(k), torch.sigmoid(g), v, state)
    return self.output(y), state


def _indexed(q, k, g, v, state):
  written = k.unsqueeze(-1) * v.unsqueeze(-2)
  outputs = []
  for t in range(q.shape[1]):
    state = g[:, t].unsqueeze(-1) * state + written[:, t]
    outputs.append(torch.einsum('bk,bkp->bp', q[:, t], state))
  return torch.stack(outputs, 1), state


def _careful(q, k, g, v, state):
  outputs = []
  steps = zip(*(x.unbind(1) for x in (q, k, g, v)), strict=True)
  for q_t, k_t, g_t, v_t in steps:
    kept = g_t.unsqueeze(-1) * state
    state = torch.addcmul(kept, k_t.unsqueeze(-1), v_t.unsqueeze(-2))
    outputs.append(torch.bmm(q_t.unsqueeze(-2), state).squeeze(-2))
  return torch.stack(outputs, 1), state


def _compiled(q, k, g, v, state):
  outputs, run = [], _compile()
  blocks = zip(*(x.split(BLOCK, 1) for x in (q, k, g, v)), strict=True)
  for block in blocks:
    y, state = run(*block, state)
    outputs.append(y)
  return torch.cat(outputs, 1), state


@functools.cache
def _compile():
  """The careful loop as a program for each length of a block."""
  return torch.compile(_careful, dynamic=False)


def _history(q, k, g, v, state):
  written = k.unsqueeze(-1) * v.unsqueeze(-2)
  states = torch.cat([state.unsqueeze(1), torch.zeros_like(written)], 1)
  for t in range(q.shape[1]):
    # A copy, since the backward pass reads it after later writes.
    kept = g[:, t].unsqueeze(-1) * states[:, t].clone()
    states[:, t + 1] = kept + written[:, t]
  y = torch.einsum('blk,blkp->blp', q, states[:, 1:])
  return y, states[:, -1]


LOOPS = {
  'careful': _careful,
  'compiled': _compiled,
  'indexed': _indexed,
  'history': _history,
}


class LanguageModel(torch.nn.Module):
  """Embedding, layers, head; (tokens BxL, states) to (logits, states)."""

  def __init__(self, options: Options):
    super().__init__()
    self.options = options
    self.embedding = torch.nn.Embedding(options.vocabulary, options.width)
    self.layers = torch.nn.ModuleList(
      Layer(options) for _ in range(options.layers)
    )
    self.head = torch.nn.Linear(options.width, options.vocabulary)

  def init_state(self, batch: int) -> list[torch.Tensor]:
    """Zero states, one per layer."""
    shape = (batch, self.options.key_width, self.options.value_width)
    return [torch.zeros(shape) for _ in self.layers]

  def forward(
    self, tokens: torch.Tensor, states: list[torch.Tensor]
  ) -> tuple[torch.Tensor, list[torch.Tensor]]:
    x, new = self.embedding(tokens), []
    for layer, old in zip(self.layers, states, strict=True):
      inputs = x, old
      if self.options.checkpointed:
        x, state = checkpoint.checkpoint(layer, *inputs, use_reentrant=False)
      else:
        x, state = layer(*inputs)
      new.append(state)
    return self.head(x), new
