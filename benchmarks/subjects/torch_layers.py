"""torch.nn.LSTM and torch.nn.GRU as recurrent_layers.py measures our cells."""

import torch

from benchmarks import measure

LAYERS = {'lstm': torch.nn.LSTM, 'gru': torch.nn.GRU}


def training(repeats, cell, shape):
  """Seconds of a forward and a backward pass."""
  layer, x_BxLxD = _make(cell, shape)
  x_BxLxD.requires_grad_()
  dy_BxLxD = x_BxLxD.detach().cos()

  def run():
    layer.zero_grad()
    x_BxLxD.grad = None
    layer(x_BxLxD)[0].backward(dy_BxLxD)

  return measure.repeat(run, repeats, 3)


def stepping(repeats, cell, shape):
  """Seconds of L steps, and of each."""
  layer, x_BxLxD = _make(cell, shape)
  steps = x_BxLxD.split(1, 1)

  def run():
    state = None
    with torch.inference_mode():
      for x_Bx1xD in steps:
        _, state = layer(x_Bx1xD, state)

  values = measure.repeat(run, repeats, 3)
  return values | {'seconds_per_step': values['median'] / shape[1]}


def _make(cell, shape):
  torch.manual_seed(0)
  torch.set_num_threads(measure.cores())
  layer = LAYERS[cell](shape[-1], shape[-1], batch_first=True)
  return layer, torch.randn(shape)
