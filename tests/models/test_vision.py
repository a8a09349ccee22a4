"""The classifier of pictures against its equations."""

import dataclasses
import functools
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.models import vision
from tests.support import bdh_oracle
from tests.support import draws

pytestmark = pytest.mark.slow

ROWS, CLASSES = 3, 4
CLOSE = 5e-6  # measured: 9e-7 of the largest logit
SAME = 2e-5  # measured: 3e-6; normalizing twice divides by 1 + eps


def config(model='v2', **changes):
  """The config of a small model of configs/cifar10_bdh.py."""
  raw = importlib.import_module('configs.cifar10_bdh').get_config(model)
  raw.data.classes = tuple('abcd')
  raw.data.image.size = 8
  raw.model.update(width=8, layers=2)
  if model == 'vit':
    raw.model.mlp_width = 16
    raw.cell.update(heads=2, head_width=4)
  else:
    raw.cell.update(heads=2, neurons=16)
  raw.train.precision = 'float32'
  raw.update_from_flattened_dict(changes)
  return config_lib.parse(raw)


def pictures():
  rng = np.random.default_rng(0)
  return rng.integers(0, 256, (ROWS, 8, 8, 3), np.uint8)


def made(parsed):
  """(the model, parameters away from their initial values)."""
  model = vision.from_config(parsed)
  return model, draws.parameters(model.init, pictures())['params']


@functools.cache
def run(parsed):
  return jax.jit(vision.from_config(parsed).apply)


def oracle(params, parsed):
  """The logits of Vision-BDH v1 in float64."""
  params = jax.tree.map(np.float64, params)
  image = parsed.data.image
  x = (pictures() / 255 - np.array(image.mean)) / np.array(image.std)
  rows = []
  for picture in x:
    patches = [
      picture[i : i + 4, j : j + 4].ravel()
      for i in range(0, 8, 4)
      for j in range(0, 8, 4)
    ]
    rows.append(patches)
  x = np.array(rows) @ params['patches']['kernel'] + params['patches']['bias']
  if 'token' in params:
    token = np.broadcast_to(params['token'], (ROWS, 1, 8))
    x = np.concatenate([token, x], 1)
  x = bdh_oracle.standard(x + params['positions']['table']['embedding'])
  cell = parsed.cell
  options = bdh_oracle.Options(cell.heads, cell.rotary, 'row', cell.weights)
  for _ in range(parsed.model.layers):
    y = bdh_oracle.layer(params['stack']['shared']['cell'], x, options)
    x = bdh_oracle.standard(x + bdh_oracle.standard(y))
  pooled = x[:, 0] if 'token' in params else x.mean(1)
  head = params['head']
  return bdh_oracle.standard(pooled) @ head['kernel'] + head['bias']


@pytest.mark.parametrize('name', ('v1', 'v2', 'v2_softmax', 'v2_token'))
def test_vision_bdh_equals_its_equations(name):
  parsed = config(name)
  _, params = made(parsed)
  got = run(parsed)({'params': params}, pictures())
  want = oracle(params, parsed)
  tolerance = CLOSE if name == 'v1' else SAME
  np.testing.assert_allclose(
    got, want, rtol=0, atol=tolerance * np.abs(want).max()
  )


def test_v1_and_v2_are_the_same_function():
  first, params = made(config('v1'))
  second = vision.from_config(config('v2'))

  def of(model):
    def run(params):
      return jnp.sum(jnp.cos(model.apply({'params': params}, pictures())))

    return jax.jit(jax.value_and_grad(run))(params)

  for a, b in zip(*map(jax.tree.leaves, (of(first), of(second))), strict=True):
    scale = max(1, np.abs(b).max())
    np.testing.assert_allclose(a, b, rtol=0, atol=SAME * scale)


def test_v1_and_v2_begin_differently():
  deviations = {}
  for name in ('v1', 'v2'):
    init = jax.jit(vision.from_config(config(name)).init)
    params = init(jax.random.key(0), pictures())['params']
    gate = params['stack']['shared']['cell']['gate']['kernel']
    deviations[name] = float(jnp.std(gate))
  # Xavier's of 8 to 16: sqrt(2 / 24).
  assert deviations['v2'] == pytest.approx(math.sqrt(2 / 24), rel=0.1)


def test_patches_are_a_strided_convolution():
  rng = np.random.default_rng(2)
  kernel = rng.normal(size=(4, 4, 3, 5)).astype(np.float32)
  images = rng.normal(size=(2, 8, 12, 3)).astype(np.float32)
  want = jax.lax.conv_general_dilated(
    images,
    kernel,
    (4, 4),
    'VALID',
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    precision='highest',
  )
  got = np.asarray(vision.split(jnp.asarray(images), 4)) @ kernel.reshape(-1, 5)
  # Measured: 4e-6, of sums of 48 numbers.
  np.testing.assert_allclose(got, want.reshape(2, 6, 5), rtol=0, atol=2e-5)
  with pytest.raises(ValueError, match='patch=3: it must divide'):
    vision.split(images, 3)


def test_vit_sees_all_of_an_image_and_its_positions():
  model, params = made(config('vit'))
  run = jax.jit(lambda image: model.apply({'params': params}, image))
  logits, image = run(pictures()), pictures()
  image[:, -1, -1] ^= 255  # the last patch
  assert np.abs(run(image) - logits).max(1).min() > 1e-3
  swapped = pictures()
  swapped[:, :4, :4], swapped[:, 4:, 4:] = (
    pictures()[:, 4:, 4:],
    pictures()[:, :4, :4],
  )
  assert np.abs(run(swapped) - logits).max(1).min() > 1e-3


def test_any_cell_reads_patches_in_a_row():
  raw = config_lib.default('lstm')
  raw.task.name = 'image_classification'
  raw.data.update(source='digits', layout='images', length=1)
  raw.data.classes = tuple('abcd')
  raw.data.image.size = 8
  raw.model.update(width=8, layers=1)
  model, params = made(config_lib.parse(raw))
  logits = jax.jit(model.apply)({'params': params}, pictures())
  assert logits.shape == (ROWS, CLASSES)
  assert np.isfinite(logits).all()


def test_16_bit_results_are_close():
  parsed = config('v2')
  _, params = made(parsed)
  half = dataclasses.replace(
    parsed, train=dataclasses.replace(parsed.train, precision='bfloat16')
  )
  want, got = (run(c)({'params': params}, pictures()) for c in (parsed, half))
  assert got.dtype == jnp.float32
  # Measured: .03 of the largest logit.
  assert np.abs(got - want).max() < 0.1 * np.abs(want).max()


@pytest.mark.parametrize(
  ('name', 'count'),
  (  # 9,408 + 12,288 + 3 x 6 x 192 x 1,024 + 1,930 by hand; a token: 192 twice
    ('v1', 3_562_570),
    ('v2', 3_562_570),
    ('v2_softmax', 3_562_570),
    ('v2_token', 3_562_954),
    # 9,408 + 12,480 + 192 + 12 x 444,864 + 384 + 1,930 by hand.
    ('vit', 5_362_762),
  ),
)
def test_cifar10s_models_have_their_parameters(name, count):
  raw = importlib.import_module('configs.cifar10_bdh').get_config(name)
  model = vision.from_config(config_lib.parse(raw))
  image = jax.ShapeDtypeStruct((1, 32, 32, 3), 'uint8')
  shapes = jax.eval_shape(model.init, jax.random.key(0), image)
  assert sum(math.prod(x.shape) for x in jax.tree.leaves(shapes)) == count
