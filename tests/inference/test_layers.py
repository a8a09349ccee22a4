"""The model with separate layers against the stacked one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import layers
from rnn_jax.ops import precision
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


def state_of(model):
  state = jax.eval_shape(lambda: model.apply({}, 1, method='init_state'))
  return [x for x in jax.tree.leaves(state) if x.ndim > 1]


@pytest.mark.parametrize('cell', ['simple_rnn', 'mamba2', 'rwkv7', 'bdh'])
def test_matrix_states_take_half_the_memory(cell):
  model = models.make(vocabulary=11, cell=cell)
  whole, half = (
    state_of(layers.with_states(model, states)) for states in precision.STATES
  )
  assert [x.shape for x in half] == [x.shape for x in whole]
  changed = [x for x in half if x.dtype == jnp.bfloat16]
  assert changed == [x for x in half if x.ndim == 4]
  assert state_of(layers.for_inference(model)) == whole


def test_states_that_cannot_be_in_a_format_are_refused():
  model = models.make(vocabulary=11, cell='lstm')
  with pytest.raises(errors.InputError, match="states='int8': choose one of"):
    layers.with_states(model, 'int8')
  with pytest.raises(errors.InputError, match='no state of lstm is a matrix'):
    layers.with_states(model, 'bfloat16')
