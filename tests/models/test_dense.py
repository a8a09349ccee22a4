"""The factors of whole models against each layer run separately."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells import lstm
from rnn_jax.data.text import tokenizer
from rnn_jax.models import blocks
from rnn_jax.models import dense
from rnn_jax.models import language_model
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.profiling import workload
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.optimizers import kfac
from tests.support import draws

pytestmark = pytest.mark.slow

LAYERS, ROWS, LENGTH = 2, 4, 8
KERNELS = (
  'cell/projection/kernel',
  'cell/output/kernel',
  'mlp/up/kernel',
  'mlp/gate/kernel',
  'mlp/down/kernel',
)
LONGEST = 20  # mlp_width is above


def config(**changes):
  raw = config_lib.default()
  raw.data.update(length=LENGTH, batch_size=ROWS)
  raw.model.update(layers=LAYERS, width=12, mlp_width=24)
  # One key: a first step's q k is a product without cancellation, whose
  # rounding the norm after it would magnify (8e-6 for two keys, 7e-7 for one).
  raw.cell.update(heads=2, key_width=1, value_width=4)
  raw.optimizer.update(name='kfac', longest_side=LONGEST)
  raw.schedule.update(warmup_steps=0)
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  for key, value in changes.items():
    section, _, name = key.partition('__')
    raw[section][name] = value
  return config_lib.parse(raw)


@functools.cache
def batch():
  """Rows that begin anywhere in a document, two of them with padding."""
  settings = config()
  drawn = workload.random_batch(settings, 259, ROWS, 0)
  drawn.weights_BxL[:2, LENGTH // 2 :] = 0
  drawn.starts_BxL[3, LENGTH // 2] = 1
  return drawn


@functools.cache
def trained():
  """A training step. Returns (parameters before it, the factors after it).

  It adds up micro-batches and computes activations twice.
  """
  settings = config(train__accumulate=2, remat__layers=1, remat__segment=5)
  made = programs_lib.from_config(
    settings, tokenizer.Bytes(), jax.devices()[:1]
  )
  state = made.states.init(ROWS)
  params = jax.device_get(state.params)
  placed = mesh_lib.put(batch(), made.batch_sharding)
  state, _ = made.train_step(state, placed)
  states = jax.tree.leaves(
    state.opt_state, is_leaf=lambda x: isinstance(x, kfac.State)
  )
  (kept,) = (x for x in states if isinstance(x, kfac.State))
  return params, jax.device_get(kept.factors['stack']['blocks'])


def layer_by_layer(params):
  """{(layer, kernel): (x, dy)}, each layer a program of its own.

  dy are gradients of what is added to a product, the rows of which are x.
  """
  settings = config()
  model = language_model.from_config(settings, tokenizer.Bytes().size)
  block = blocks.Block(
    model.config, model.cell_config, model.plan, model.policy, parent=None
  )
  layers = [
    jax.tree.map(lambda x, n=n: x[n], params['stack']['blocks'])
    for n in range(LAYERS)
  ]

  def loss(added):
    seen = {}

    def listen(run, args, options, context):
      y = run(*args, **options)
      if not isinstance(context.module, nn.Dense):
        return y
      name = layer, '/'.join((*context.module.path, 'kernel'))
      seen[name] = args[0], y
      return y + added[name] if added else y

    x = jnp.asarray(params['embedding']['embedding'])[batch().tokens_BxL]
    state = blocks.make_cell(block, parent=None).init_state(ROWS)
    for layer in range(LAYERS):
      with nn.intercept_methods(listen):
        x, _ = block.apply(
          {'params': layers[layer]}, x, state, batch().starts_BxL
        )
    x = model.apply({'params': params}, x, method='normalize')
    logits = x @ params['head']['kernel'] + params['head']['bias'][None, None]
    log_probability = jnp.take_along_axis(
      jax.nn.log_softmax(logits), batch().targets_BxL[..., None], -1
    )
    return -jnp.sum(batch().weights_BxL * log_probability[..., 0]), seen

  shapes = jax.eval_shape(loss, {})[1]
  zeros = {n: jnp.zeros(y.shape, y.dtype) for n, (_, y) in shapes.items()}
  back, seen = jax.jit(jax.grad(loss, has_aux=True))(zeros)
  return {name: (seen[name][0], back[name]) for name in seen}


def at(tree, name):
  for key in name.split('/'):
    tree = tree[key]
  return tree


def test_factors_of_stacked_layers_are_those_of_each_layer():
  params, factors = trained()
  pairs = layer_by_layer(params)
  assert {name for _, name in pairs} == {*KERNELS}
  count = batch().weights_BxL.sum()
  for (layer, name), pair in pairs.items():
    read, back = (np.float64(x).reshape(-1, x.shape[-1]) for x in pair)
    used = (back != 0).any(1)
    assert (~used).sum() == LENGTH  # the padding of two rows
    for x, factor in zip((read, back), at(factors, name), strict=True):
      rows = x[used]
      expected = rows.T @ rows / count
      if expected.shape[0] > LONGEST:
        expected = np.diag(expected)
      # Measured: 1.5e-5 of the largest, as float32 knows a first step's norm.
      largest = abs(expected).max()
      np.testing.assert_allclose(factor[layer], expected, 0, 1e-4 * largest)


@pytest.mark.parametrize('every', (0, 3))
def test_factors_of_a_recurrent_kernel_are_sums_over_steps(every):
  """Also where the backward pass runs the steps again by a schedule."""
  plan = base.Plan('scan', remat_every=every, remat_schedule='binomial')
  cell = lstm.Cell(lstm.Config(state_width=3), 3, plan)
  rng = np.random.default_rng(0)
  x, c = np.float32(rng.normal(size=(2, 2, 7, 3)))
  state = draws.computed(lambda: cell.bind({}).init_state(2))
  params = draws.parameters(cell.init, state, x)['params']
  blank = dense.blank(params, ['recurrent/kernel'], 100)

  def loss(blank):
    variables = {'params': dense.joined(params, blank)}
    _, y = cell.apply(variables, state, x)
    return jnp.sum(c * y), y

  with dense.tagging():
    factors, h = jax.device_get(jax.jit(jax.grad(loss, has_aux=True))(blank))
  before = np.float64(h[:, :-1]).reshape(-1, 3)  # h_0 = 0
  # Measured: 1e-7.
  np.testing.assert_allclose(
    factors['recurrent']['kernel'].inputs, before.T @ before, 1e-6, 1e-6
  )
  assert factors['recurrent']['kernel'].outputs.shape == (12, 12)


def test_kernels_are_only_those_of_dense_layers():
  """Without the head, by which the loss multiplies itself, and without taps."""
  settings = config()
  model = language_model.from_config(settings, 50)

  def init(key):
    state = model.bind({}).init_state(1)
    return model.init(key, state, jnp.zeros((1, 2), jnp.int32))['params']

  with jax.transfer_guard('disallow'):  # as in the launchers
    names = dense.kernels(init)
  assert names == {f'stack/blocks/{name}' for name in KERNELS}
