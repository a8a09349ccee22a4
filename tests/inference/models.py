"""Small models for the tests of rnn_jax.inference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.models import language_model

VOCABULARY = 257
LONGEST = 96


CELLS = {
  'simple_rnn': {'heads': 2, 'key_width': 4, 'value_width': 6},
  'bdh': {'heads': 2, 'neurons': 16},
}


def config(cell='simple_rnn', **changes):
  """A small Config; `changes` are keys such as model_block."""
  raw = config_lib.default(cell)
  raw.model.update(layers=2, width=12)
  raw.cell.update(CELLS.get(cell, {}))
  for key, value in changes.items():
    section, _, name = key.partition('_')
    raw[section][name] = value
  return config_lib.parse(raw)


def make(vocabulary=VOCABULARY, **changes):
  """A small model."""
  return language_model.from_config(config(**changes), vocabulary)


def build(seed=0, vocabulary=VOCABULARY, **changes):
  """Returns (model, params)."""
  model = make(vocabulary, **changes)
  return model, init(model, seed)


def init(model, seed=0):
  """Random parameters; the head's are large, so that texts differ."""
  return _init(model, seed)


@functools.partial(jax.jit, static_argnums=0)
def _init(model, seed):
  state = model.apply({}, 1, method='init_state')
  tokens = jnp.zeros((1, 2), jnp.int32)
  params = model.init(jax.random.key(seed), state, tokens)['params']
  if 'head' in params:
    params['head'] = jax.tree.map(lambda x: 4 * x, params['head'])
  return params


def full_pass(model, params, tokens):
  """Logits LxV of one sequence from the zero state."""
  # Padded at the end, which a causal model ignores: one compilation.
  row = np.zeros((1, LONGEST), np.int32)
  row[0, : len(tokens)] = tokens
  return np.asarray(_run(model, params, row))[0, : len(tokens)]


@functools.partial(jax.jit, static_argnums=0)
def _run(model, params, tokens_BxL):
  state = model.apply({}, 1, method='init_state')
  return model.apply({'params': params}, state, tokens_BxL)[1]
