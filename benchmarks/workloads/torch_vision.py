"""Vision-BDH in PyTorch, written from the published equations, and its step.

    x = norm(W patches + b + positions), then for each layer, x normed again
    s_h = relu(x E_h)      R_h = rotary(s_h)      a_h = scores(R_h R_h^T) x
    x = norm(x + norm([s_h * relu(norm(a_h) G_h)]_h W))
    logits = W_head norm(mean of x) + b

scores are R R^T itself, or with weights='softmax' softmax(R R^T / sqrt(N)).
Options say how the same numbers are computed: angles from each pass or once,
softmax by hand or by PyTorch's fused attention, which has no linear form.

Shapes: pictures BxCxHxW, x BxLxD, s and R BxHxLxN, logits BxC.
"""

import dataclasses

import torch

from benchmarks.harness import measure
from benchmarks.workloads import torch_model

nn = torch.nn
functional = torch.nn.functional
WIDTH, LAYERS, HEADS, NEURONS = 192, 6, 6, 1024
SIDE, PATCH, CLASSES = 32, 4, 10
BASE = 65_536.0  # of the angles


@dataclasses.dataclass(frozen=True)
class Options:
  """Sizes, and how the same numbers are computed."""

  weights: str = 'linear'  # or 'softmax'
  cached: bool = False  # the angles, rather than made by each pass
  fused: bool = False  # softmax, by scaled_dot_product_attention
  channels_last: bool = False  # in memory
  width: int = WIDTH
  layers: int = LAYERS
  heads: int = HEADS
  neurons: int = NEURONS
  side: int = SIDE
  classes: int = CLASSES

  @property
  def steps(self) -> int:
    """The patches of a picture."""
    return (self.side // PATCH) ** 2


class Network(nn.Module):
  """The classifier, v2."""

  def __init__(self, options: Options):
    super().__init__()
    self.options = options
    width, heads, neurons = options.width, options.heads, options.neurons
    self.patches = nn.Conv2d(3, width, PATCH, PATCH)
    self.positions = nn.Parameter(0.02 * torch.randn(1, options.steps, width))
    self.encoder = nn.Parameter(torch.empty(heads, width, neurons))
    self.gate = nn.Parameter(torch.empty(heads, width, neurons))
    self.decoder = nn.Parameter(torch.empty(heads * neurons, width))
    for matrices in (self.encoder, self.gate, self.decoder[None]):
      for matrix in matrices:
        nn.init.xavier_uniform_(matrix)
    self.head = nn.Linear(width, options.classes)
    if options.cached:
      for name, table in zip(('cos', 'sin'), angles(options), strict=True):
        self.register_buffer(name, table, persistent=False)

  def forward(self, pictures: torch.Tensor) -> torch.Tensor:
    x = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
    for _ in range(self.options.layers):
      x = self._layer(_norm(x))
    return self.head(_norm(x.mean(1)))

  def _layer(self, x):
    B, L, D = x.shape
    shared = x[:, None]  # by all heads
    s = torch.relu(shared @ self.encoder)
    rotated = rotate(s, self._angles(x.device))
    read = _norm(self._attend(rotated, shared.expand(-1, s.shape[1], -1, -1)))
    z = s * torch.relu(read @ self.gate)
    y = z.transpose(1, 2).reshape(B, L, -1) @ self.decoder
    return _norm(x + _norm(y))

  def _angles(self, device):
    if self.options.cached:
      return self.cos, self.sin
    return angles(self.options, device)

  def _attend(self, rotated, values):
    options = self.options
    if options.weights == 'linear':
      return rotated @ rotated.mT @ values
    if options.fused:
      return functional.scaled_dot_product_attention(rotated, rotated, values)
    scores = rotated @ rotated.mT / options.neurons**0.5
    return scores.softmax(-1) @ values


def angles(
  options: Options, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
  """cos and sin of all steps and pairs of neurons, LxN/2 each."""
  pairs = torch.arange(0, options.neurons, 2, device=device)
  rates = BASE ** (-pairs / options.neurons)
  turns = torch.outer(torch.arange(options.steps, device=device), rates)
  return turns.cos(), turns.sin()


def rotate(
  s: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
  """Rotates neighbouring neurons by the angles of their step."""
  cos, sin = table
  even, odd = s[..., ::2], s[..., 1::2]
  turned = even * cos - odd * sin, even * sin + odd * cos
  return torch.stack(turned, -1).flatten(-2)


def _norm(x):
  return functional.layer_norm(x, x.shape[-1:], eps=1e-5)


def train(
  repeats: int,
  model: measure.Values,
  pictures: int,
  batch: int,
  accumulate: int = 1,
  fused: bool = False,
  compiled: bool = False,
  bfloat16: bool = False,
  device: str = 'cpu',
) -> measure.Values:
  """Forward and backward passes of so many pictures, and AdamW's steps.

  Args:
    repeats: how often.
    model: options of the network.
    pictures: that are one measurement.
    batch: of a pass.
    accumulate: passes of a step of the optimizer.
    fused: AdamW, by one kernel.
    compiled: the network, by torch.compile.
    bfloat16: its matmuls and what follows them, by autocast.
    device: 'cpu' or 'cuda'.
  """
  torch.manual_seed(0)
  torch.set_num_threads(measure.cores())
  torch.set_default_device(device)
  options = Options(**model)
  network = Network(options)
  weights = sum(x.numel() for x in network.parameters())
  optimizer = torch.optim.AdamW(
    network.parameters(), 2e-4, weight_decay=0.05, fused=fused
  )
  x = torch.randn(pictures, 3, options.side, options.side)
  if options.channels_last:
    x = x.contiguous(memory_format=torch.channels_last)
    network = network.to(memory_format=torch.channels_last)
  labels = torch.arange(pictures) % options.classes
  batches = [*zip(x.split(batch), labels.split(batch), strict=True)]
  apply = torch.compile(network) if compiled else network

  def run():
    for n, (some, wanted) in enumerate(batches, 1):
      with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
        loss = functional.cross_entropy(apply(some), wanted) / accumulate
      loss.backward()
      if n % accumulate == 0:
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

  if compiled and device != 'cpu':
    run()  # compiles while others do, see turns.py
  values = torch_model.measured(run, repeats)
  rate = pictures / values['median']
  return values | {'weights': weights, 'pictures_per_second': rate}
