"""PyTorch's Vision-BDH has our numbers, however it computes them."""

import jax
import numpy as np
import pytest

from benchmarks.workloads import configs
from rnn_jax.models import vision

SMALL = {
  'data.classes': tuple('abcd'),
  'data.image.size': 8,
  'model.width': 8,
  'model.layers': 2,
  'model.unroll': 2,
  'cell.heads': 2,
  'cell.neurons': 16,
  'train.precision': 'float32',
}
SIZES = {
  'width': 8,
  'layers': 2,
  'heads': 2,
  'neurons': 16,
  'side': 8,
  'classes': 4,
}


@pytest.mark.peers
@pytest.mark.parametrize(
  'name, options',
  (
    ('v2', {}),
    ('v2', {'cached': True, 'channels_last': True}),
    ('v2_softmax', {'weights': 'softmax'}),
    ('v2_softmax', {'weights': 'softmax', 'fused': True}),
  ),
)
def test_their_logits_are_ours(name, options):
  import torch

  from benchmarks.workloads import torch_vision

  parsed = configs.parse('cifar10_bdh', name, SMALL)
  pictures = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
  ours = vision.from_config(parsed)
  params = ours.init(jax.random.key(0), pictures)['params']
  want = ours.apply({'params': params}, pictures)

  network = torch_vision.Network(torch_vision.Options(**SIZES, **options))
  load(network, jax.device_get(params))
  image = parsed.data.image
  x = (pictures / 255 - np.array(image.mean)) / np.array(image.std)
  got = network(torch.from_numpy(np.float32(x)).permute(0, 3, 1, 2))
  # Measured: 1e-6 of the largest logit.
  scale = np.abs(want).max()
  np.testing.assert_allclose(got.detach(), want, rtol=0, atol=2e-5 * scale)


@pytest.mark.peers
def test_a_measurement_takes_all_pictures_at_the_published_size():
  import torch

  from benchmarks.workloads import torch_vision

  full = torch_vision.Network(torch_vision.Options())
  assert sum(x.numel() for x in full.parameters()) == 3_562_570
  seen = []
  forward = torch_vision.Network.forward
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      torch_vision.Network,
      'forward',
      lambda self, x: seen.append(len(x)) or forward(self, x),
    )
    values = torch_vision.train(
      repeats=1, model=SIZES, pictures=8, batch=2, accumulate=2
    )
  assert seen == 2 * [2, 2, 2, 2]  # with the one that isn't timed
  assert values['pictures_per_second'] == 8 / values['median']
  with torch.no_grad():
    assert full(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def load(network, params):
  """Copies our parameters into a network."""
  import torch

  cell = params['stack']['shared']['cell']
  heads, width = network.options.heads, network.options.width
  encoder = cell['encoder']['kernel'].reshape(width, heads, -1)
  patches = params['patches']['kernel'].reshape(4, 4, 3, width)
  state = {
    'patches.weight': patches.transpose(3, 2, 0, 1),
    'patches.bias': params['patches']['bias'],
    'positions': params['positions']['table']['embedding'][None],
    'encoder': encoder.swapaxes(0, 1),
    'gate': cell['gate']['kernel'],
    'decoder': cell['output']['kernel'],
    'head.weight': params['head']['kernel'].T,
    'head.bias': params['head']['bias'],
  }
  network.load_state_dict(
    {k: torch.from_numpy(v.copy()) for k, v in state.items()}
  )
