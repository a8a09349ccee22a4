"""Layers with PyTorch's weights: two directions over padded rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import layers
from rnn_jax.interop import torch_cells
from tests.support import draws

B, L, D, F = 3, 7, 5, 4
LENGTHS = np.array([7, 4, 1], np.int32)
CLOSE = 2e-6  # measured: 5e-7, of the largest number of each array


def assert_close(got, want):
  want = np.asarray(want.detach())
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE * abs(want).max())


@pytest.mark.peers
@pytest.mark.parametrize('kind', ('LSTM', 'GRU'))
def test_both_directions_over_padded_rows_are_pytorch_s(kind):
  import torch

  torch.manual_seed(0)
  module = getattr(torch.nn, kind)(D, F, batch_first=True, bidirectional=True)
  tensors = module.state_dict()
  ends = {'forward': '', 'backward': '_reverse'}
  (both,) = torch_cells.both_from_torch(kind.lower(), tensors)
  params = both._asdict()
  layer = layers.Bidirectional(getattr(layers, kind)(F))
  x = draws.normal(B, L, D)

  @jax.jit
  def both_ways(params, x):
    def run(params, x):
      return layer.apply(
        {'params': params}, None, x, lengths=LENGTHS, method='scan'
      )

    out, back = jax.vjp(run, params, x)
    return out, back(jax.tree.map(jnp.cos, out))

  (states, y), (d_params, d_x) = both_ways(params, x)
  given = torch.tensor(np.asarray(x), requires_grad=True)
  utils = torch.nn.utils.rnn
  packed = utils.pack_padded_sequence(given, LENGTHS, batch_first=True)
  packed, last = module(packed)
  want, _ = utils.pad_packed_sequence(packed, batch_first=True, total_length=L)
  last = last if isinstance(last, tuple) else (last,)
  # Its gradient is the cosine that was given to ours.
  sum(torch.sin(out).sum() for out in (want, *last)).backward()

  assert_close(y, want)
  assert_close(d_x, given.grad)
  for n, part in enumerate(last):
    assert_close(np.stack([state[n] for state in states]), part)
  gradients = {name: p.grad for name, p in module.named_parameters()}
  for name, end in ends.items():
    own = d_params[name]
    for ours, theirs in (('projection', 'ih'), ('recurrent', 'hh')):
      kernel = gradients[f'weight_{theirs}_l0{end}']
      assert_close(own[ours]['kernel'].T, kernel)
    assert_close(own['projection']['bias'], gradients[f'bias_ih_l0{end}'])
