"""Models that read packed matrices, and the same ones with float32 matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.models import language_model
from rnn_jax.models import packed_weights
from rnn_jax.ops import products
from tests.support import draws
from tests.support import tiny

V, B, L = 37, 3, 5
MODELS = {
  **{cell: {'model.cell': cell} for cell in config_lib.names('cells')},
  # A norm enlarges the rounding of a head that a step reads little from.
  'deltaproduct': {'model.cell': 'deltaproduct', 'cell.norm_epsilon': 0.01},
  'tied': {'model.tied': True},
  'narrow embedding': {'model.embedding_width': 8},
  'hybrid': {'model.cells': ('simple_rnn', 'attention')},
  'experts': {
    'model.block': 'residual',
    'model.mlp_width': 8,
    'model.experts.count': 4,
  },
  'positions': {'model.positions': 'learned', 'model.max_positions': 40},
  'bfloat16': {'train.precision': 'bfloat16'},
}
SUMS, ROUNDED, BFLOAT16 = 2e-6, 1e-3, 5e-2  # of the largest number


def initial(init, *inputs):
  """What a new model has: its greedy texts repeat."""
  return jax.jit(init)(jax.random.key(0), *inputs)


def build(own, parameters=draws.parameters):
  raw = tiny.raw_config('gone')
  config_lib.override(raw, own)
  config = config_lib.parse(raw)
  model = layers.for_inference(language_model.from_config(config, V))
  state = draws.computed(lambda: model.apply({}, B, method='init_state'))
  params = parameters(model.init, state, np.zeros((B, L), np.int32))
  return model, state, params['params']


def check(name, format, close):
  """Compares logits and states of one step of several rows."""
  model, state, params = build(MODELS[name])
  tokens = np.random.default_rng(1).integers(0, V, (B, L), np.int32)
  run = jax.jit(decode.apply, static_argnums=0)
  packed = packed_weights.pack(params, format)
  rounded = packed_weights.unpack(packed)
  assert jax.tree.map(jnp.shape, rounded) == jax.tree.map(jnp.shape, params)
  got = run(model, packed, state, tokens)
  wanted = run(model, rounded, state, tokens)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
    size = np.abs(np.float64(b)).max()
    if size > 1e-3:  # not a state that is nearly zero
      error = np.abs(np.float64(a) - np.float64(b)).max()
      assert error <= close * size


@pytest.mark.native
@pytest.mark.parametrize('name', MODELS)
def test_a_model_of_packed_matrices_is_that_of_the_rounded_ones(name):
  check(name, 'int8', BFLOAT16 if name == 'bfloat16' else ROUNDED)


@pytest.mark.native
@pytest.mark.parametrize('format', products.FORMATS)
def test_every_format(format):
  check('simple_rnn', format, ROUNDED if format.startswith('int') else SUMS)
