"""A text has the same bits alone and among others, whatever the model."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.inference import sampling
from rnn_jax.models import packed_weights
from tests.inference import tables
from tests.models import test_packed_weights as models
from tests.support import draws

COUNT = 6
WARM = sampling.Sampling(temperature=1.1, top_p=0.9)
ODD = {'model.width': 27, 'cell.heads': 3, 'cell.key_width': 5}
BLOCKS = {'model.block': 'residual', 'model.mlp_width': 21, **ODD}
MODELS = {
  **{name: own for name, own in models.MODELS.items() if name != 'bfloat16'},
  **{
    f'simple_rnn {preset}': {**BLOCKS, 'cell.preset': preset}
    for preset in ('simple', 'modified', 'improved', 'coupled')
  },
  'layer norm': {**BLOCKS, 'model.norm': 'layer', 'model.mlp': 'gelu'},
  'attention of 8 steps': {
    'model.cell': 'attention',
    'model.block': 'residual',
    'cell.window': 8,
    'cell.qk_norm': True,
  },
}
# Of this one, all sizes of a server's programs.
MANY = {'simple_rnn coupled'}
pytestmark = pytest.mark.native


@functools.cache
def build(name, format, states='float32', parameters=draws.parameters):
  model, _, params = models.build(MODELS[name], parameters)
  model = layers.with_states(model, states)
  return model, packed_weights.pack(params, format)


def write(name, format, rows, states='float32'):
  """Returns (tokens, log-probabilities, states) of rows by their numbers."""
  model, params = build(name, format, states)
  carry = decode.empty(model, len(rows))  # the first tokens are drawn evenly
  table = tables.packed(WARM, rows, seed=3)
  options = decode.Options(WARM.kind(models.V))
  weights = decode.Weights(params)
  carry, made = decode.decode(model, options, weights, carry, table, COUNT)
  state = [x for x in jax.tree.leaves(carry.state) if x.ndim]
  return jax.device_get((made.tokens_BxN, made.logprobs_BxN, *state))


def check(name, format, sizes, most, states='float32'):
  together = write(name, format, range(most), states)
  assert len(np.unique(together[0])) > 3
  for size in sizes:
    for first in (0, most - size):
      rows = slice(first, first + size)
      fewer = write(name, format, range(most)[rows], states)
      for a, b in zip(fewer, together, strict=True):
        np.testing.assert_array_equal(a, b[rows])


@pytest.mark.parametrize('name', MODELS)
def test_rows_alone_and_among_others(name):
  sizes = (1, 2, 4, 8, 16) if name in MANY else (1,)
  check(name, 'float32', sizes, 64 if name in MANY else 16)


@pytest.mark.parametrize('format', ['bfloat16', 'int8', 'int4'])
def test_rows_in_other_formats(format):
  check('simple_rnn coupled', format, (1,), 16)


@pytest.mark.parametrize(
  'name', ['mamba2', 'simple_rnn coupled', 'gated_deltanet', 'rwkv7', 'bdh']
)
def test_rows_with_states_in_bfloat16(name):
  check(name, 'int8', (1,), 16, 'bfloat16')
