"""A language model of random weights that decodes in one of the formats.

SIZES is a Mamba-2 of the published 130 million's shape.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import inputs
from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.inference import sampling
from rnn_jax.models import language_model
from rnn_jax.models import packed_weights
from rnn_jax.runs import bundle as bundle_lib

SIZES = {
  'vocabulary': 50_288,
  'model.width': 768,
  'model.layers': 24,
  'cell.heads': 24,
  'cell.key_width': 128,
  'cell.value_width': 64,
}
GREEDY = sampling.Sampling(temperature=0.0)


def decoding(
  repeats: int,
  format: str,
  rows: int,
  new_tokens: int = 32,
  sizes: dict[str, Any] | None = None,
  states: str = 'float32',
) -> measure.Values:
  """Greedy tokens of several rows, in one program.

  Args:
    repeats: of the tokens.
    format: of the weights; '': float32 as XLA multiplies, not packed.
    rows: that write at once.
    new_tokens: of a row.
    sizes: in place of some of SIZES.
    states: the format of its matrix states.
  """
  model, params = _model(SIZES | (sizes or {}))
  model = layers.with_states(model, states)
  if format:
    params = packed_weights.pack_to_serve(params, format, True)
  weights = decode.Weights(params)
  table = sampling.make_table(rows)
  for row in range(rows):
    sampling.put(table, row, sampling.line(GREEDY))
  table.limit_B[:] = sampling.MAX_COUNT
  kind = GREEDY.kind(model.vocabulary)
  options = decode.Options(kind, decode.buffer_size(new_tokens))
  packed = sampling.pack(table)
  prompts = jax.device_put(decode.pad(list(inputs.tokens(rows, 2)[:, :-1])))
  count = jnp.int32(new_tokens)
  carry = decode.prefill(model, weights, *prompts)

  def run():  # continues where the last one ended
    nonlocal carry
    carry, produced = decode.decode(
      model, options, weights, carry, packed, count
    )
    jax.block_until_ready(produced)

  values = measure.repeat(run, repeats)
  return values | {
    'tokens_per_second': rows * new_tokens / values['median'],
    'weights': sum(x.size for x in jax.tree.leaves(params)),
    'bytes': sum(x.nbytes for x in jax.tree.leaves(params)),
    'state_bytes': sum(x.nbytes for x in jax.tree.leaves(carry.state)) // rows,
  }


def bundle(sizes: dict[str, Any]) -> bundle_lib.Bundle:
  """Returns a run's model of these sizes, all of SIZES, with random weights."""
  config, vocabulary = _config(sizes)
  tokenizer = tokenizer_lib.Numbers(vocabulary)
  like = bundle_lib.like(config, tokenizer)
  params = jax.tree.map(_drawer(), like)
  return bundle_lib.make(config, tokenizer, params, like)


def _config(sizes):
  """Returns (config, vocabulary)."""
  sizes = {**sizes}
  raw = config_lib.default('mamba2')
  vocabulary = sizes.pop('vocabulary')
  fixed = {'model.mlp_width': 0, 'model.tied': True, 'model.unroll': 1}
  config_lib.override(raw, fixed | sizes)
  return config_lib.parse(raw), vocabulary


def _model(sizes):
  config, vocabulary = _config(sizes)
  model = layers.for_inference(language_model.from_config(config, vocabulary))
  state = model.apply({}, 1, method='init_state')
  tokens = jnp.zeros((1, 1), jnp.int32)
  shapes = jax.eval_shape(model.init, jax.random.key(0), state, tokens)
  return model, jax.device_put(jax.tree.map(_drawer(), shapes['params']))


def _drawer():
  """Returns a function of shapes that draws arrays."""
  rng = np.random.default_rng(0)
  scale = np.float32(0.02)
  return lambda x: scale * rng.standard_normal(x.shape, dtype=np.float32)
