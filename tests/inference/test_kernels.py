"""How many kernels a step of a packed model runs, by its compiled program."""

import jax.numpy as jnp
import pytest

from rnn_jax.inference import decode
from rnn_jax.models import packed_weights
from rnn_jax.profiling import hlo
from tests.models import test_packed_weights as models

pytestmark = pytest.mark.native
BLOCK = {'model.block': 'residual', 'model.mlp_width': 0}
# Of one layer: products, recurrences, and what lies between two of these.
KERNELS = {
  'simple_rnn': 6,
  'mamba2': 6,
  'gated_deltanet': 6,
  'rwkv7': 11,
  'gru': 6,
}


def kernels(cell, layers):
  own = {'model.cell': cell, 'model.layers': layers, **BLOCK}
  model, _, params = models.build(own)
  state = model.apply({}, 1, method='init_state')
  given = packed_weights.pack(params, 'int8'), state, jnp.zeros(1, jnp.int32)
  program = hlo.Program(decode.step.lower(model, *given).compile().as_text())
  unpaid = {*hlo.NO_RESULT, 'constant'}
  return sum(x.opcode not in unpaid for x in program.operations.values())


@pytest.mark.parametrize('cell', KERNELS)
def test_a_layer_is_products_recurrences_and_programs_of_rows(cell):
  assert kernels(cell, 2) - kernels(cell, 1) <= KERNELS[cell]
