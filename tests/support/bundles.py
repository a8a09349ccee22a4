"""Small models as bundles, and their logits."""

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib


def raw_published(heads=1, fused=True, preset='simple'):
  """The published model, unparsed, small."""
  raw = config_lib.default()
  raw.model.update(block='plain', layers=2, width=10)
  raw.cell.update(
    preset=preset, heads=heads, key_width=4, value_width=6, fused=fused
  )
  raw.recurrence.impl = 'scan'
  return raw


def raw_attention():
  """A small Transformer with learned positions, unparsed."""
  raw = config_lib.default('attention')
  raw.model.update(
    layers=2, width=8, mlp_width=16, mlp='gelu_tanh', norm='layer', biases=True
  )
  raw.model.update(positions='learned', tied=True, tied_multiplier=1.0)
  raw.cell.update(heads=2, head_width=4, rotary=0.0, biases=True)
  raw.data.length = 24
  raw.sample.new_tokens = 8
  return raw


def make(raw, tokenizer=None, seed=0):
  """A bundle of random parameters."""
  config = config_lib.parse(raw)
  tokenizer = tokenizer or tokenizer_lib.Numbers(21)
  like = bundle_lib.like(config, tokenizer)
  rng = np.random.default_rng(seed)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), like
  )
  return bundle_lib.make(config, tokenizer, params, like)


def model(bundle):
  """The bundle's language model."""
  return language_model.from_config(bundle.config, bundle.tokenizer.size)


def logits(bundle, tokens):
  """Logits BxLxV of the bundle's model."""
  built = model(bundle)

  def run(params):
    state = built.apply({}, len(tokens), method='init_state')
    return built.apply(params, state, np.array(tokens))

  return np.asarray(jax.jit(run)({'params': bundle.params})[1])


def assert_same(a, b):
  """Two bundles are of one model, bit for bit."""
  assert a.config == b.config
  assert a.tokenizer.spec() == b.tokenizer.spec()
  jax.tree.map(np.testing.assert_array_equal, a.params, b.params)
