"""CIFAR-10 with Vision-BDH, or with ViT-Tiny as the baseline.

  python -m launch.prepare --name=cifar10 --input=cifar-10-python.tar.gz
  python -m launch.train --config=configs/cifar10_bdh.py \\
      --workdir=runs/cifar10

The models are v2 (the default), v1, v2_softmax, v2_token (with a class token)
and vit, e.g. --config=configs/cifar10_bdh.py:vit. The recipe is the published
optimized one: learning rate 2e-4, batches of 128 x 2, warm-up, cosine,
bfloat16, 50 epochs with random crops and flips. The plain recipe uses 1e-4 and
float32: --config.optimizer.learning_rate=1e-4 --config.train.precision=float32.
On a GPU, --config.train.compiler=deterministic makes runs repeat bit for bit.

Published test accuracy: v2 .8173, v2_softmax .8045, v1 .8043, vit .7605;
docs/vision.md has what was measured here. A folder or zip of images by class is
prepared in the same way, or read directly:
--config.data.source=images --config.data.path=PATH.
"""

from rnn_jax import config as config_lib
from rnn_jax.data.preparation.formats import cifar10

MODELS = ('v1', 'v2', 'v2_softmax', 'v2_token', 'vit')
EPOCH = 47_500  # training images, without the validation split


def get_config(model='v2'):
  """Returns the config of one of MODELS."""
  if model not in MODELS:
    raise ValueError(f'model={model!r}: choose one of {MODELS}')
  config = config_lib.default(
    'attention' if model == 'vit' else 'bdh',
    task='image_classification',
    source='tfds:cifar10',
    layout='images',
  )

  config.data.field = 'image'
  config.data.classes = cifar10.CLASSES
  config.data.splits = (95, 5, 0)
  config.data.image.mean = (0.4914, 0.4822, 0.4465)
  config.data.image.std = (0.247, 0.2435, 0.2616)
  config.data.image.crop = 4
  config.data.image.flip = True
  config.data.batch_size = 256
  config.data.workers = 4

  config.vision.patch = 4
  config.model.positions = 'learned'
  config.model.width = 192
  config.cell.sees = 'row'
  _shape(config, model)
  # A scan over the layers would copy all that the backward pass reads.
  config.model.unroll = config.model.layers

  config.optimizer.learning_rate = 2e-4
  config.optimizer.b2 = 0.999
  config.optimizer.weight_decay = 0.05
  config.optimizer.clip_norm = 1.0
  config.schedule.warmup_steps = 1000
  config.schedule.final_learning_rate = 0.0
  config.train.steps = 50 * EPOCH // config.data.batch_size
  config.train.accumulate = 2
  config.train.precision = 'bfloat16'
  config.train.log_every = 50
  config.train.checkpoint_every = 500
  config.evaluate.every = EPOCH // config.data.batch_size
  config.evaluate.batch_size = 256
  config.evaluate.tokens = 0  # all images, not the first million bytes
  config.evaluate.criterion = 'errors'
  config.sample.new_tokens = 0
  return config


def _shape(config, model):
  if model == 'vit':
    config.vision.pooling = 'token'
    config.model.norm = 'layer'
    config.model.layers = 12
    config.model.mlp_width = 768
    config.model.mlp = 'gelu'
    config.model.biases = True
    config.cell.heads = 3
    config.cell.head_width = 64
    config.cell.rotary = 0.0
    config.cell.biases = True
    return
  config.model.norm = 'standard'
  config.model.layers = 6
  config.model.shared_layers = True
  config.cell.heads = 6
  config.cell.neurons = 1024
  config.model.block = 'normed' if model == 'v1' else 'renormed'
  if model == 'v1':
    config.model.kernel_scale = 0.02
  if model == 'v2_softmax':
    config.cell.weights = 'softmax'
  if model == 'v2_token':
    config.vision.pooling = 'token'
