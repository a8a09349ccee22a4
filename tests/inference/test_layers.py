"""The model with separate layers against the stacked one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.inference import layers
from tests.inference import models

VARIANTS = (
  {
    'model_mlp_width': 16,
    'model_mlp': 'gelu',
    'model_norm': 'layer',
    'model_biases': True,
    'model_positions': 'sinusoidal',
    'model_tied': True,
    'remat_layers': 2,
  },
  {
    'cell': 'bdh',
    'model_block': 'normed',
    'model_norm': 'standard',
    'model_shared_layers': True,
    'model_head_bias': False,
    'recurrence_impl': 'scan',
  },
  {
    'model_block': 'plain',
    'model_embedding_width': 8,
    'model_layers': 1,
    'cell_attention': 'general',
    'cell_preset': 'simple',
    'recurrence_impl': 'scan',
  },
)


@pytest.mark.parametrize('changes', VARIANTS, ids=str)
def test_gives_the_logits_of_the_stacked_model(changes):
  apart, stacked = both(models.make(vocabulary=11, **changes))
  # Measured: 1.2e-5 of logits up to 13.
  np.testing.assert_allclose(apart, stacked, rtol=0, atol=2e-5)


@functools.partial(jax.jit, static_argnums=0)
def both(model):
  """Logits of separate layers, and of the stack, of random parameters."""
  params = models.init(model)
  tokens = jax.random.randint(jax.random.key(1), (2, 9), 0, model.vocabulary)
  starts = jnp.zeros((2, 9), jnp.int32).at[1, 4].set(1)

  def run(model, params):
    state = model.apply({}, 2, method='init_state')
    return model.apply({'params': params}, state, tokens, starts)[1]

  apart = run(layers.for_inference(model), layers.unstack(params))
  return apart, run(model, params)
