"""The Dragon Hatchling's layer against its equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells import bdh
from tests.support import bdh_oracle
from tests.support import draws

B, L, D, H, N = 2, 6, 5, 2, 8
CLOSE = 3e-6  # measured: 6e-7 of the largest number


def cell(impl='auto', **options):
  config = bdh.Config(heads=H, neurons=N, rotary=100.0, **options)
  return bdh.Cell(config, D, base.Plan(impl, chunk_length=4))


def given(module):
  (x,) = draws.normal(1, B, L, D)
  return draws.parameters(module.init, module.init_state(B), x), x


@pytest.mark.parametrize(
  ('sees', 'weights', 'impl'),
  (
    ('past', 'linear', 'pairs'),
    ('past', 'linear', 'scan'),
    ('past', 'linear', 'chunked'),
    ('row', 'linear', 'pairs'),
    ('row', 'linear', 'state'),
    ('row', 'softmax', 'pairs'),
    ('row', 'softmax', 'blocked'),
  ),
)
def test_the_layer_equals_its_equations(sees, weights, impl):
  module = cell(impl, sees=sees, weights=weights)
  variables, x = given(module)
  _, y = jax.jit(module.apply)(variables, module.init_state(B), x)
  options = bdh_oracle.Options(H, 100.0, sees, weights)
  want = bdh_oracle.layer(variables['params'], x, options)
  np.testing.assert_allclose(y, want, rtol=0, atol=CLOSE * np.abs(want).max())


@pytest.mark.parametrize('impl', ('pairs', 'chunked', 'scan'))
def test_rows_without_a_past_have_no_memory(impl):
  module = cell(impl)
  variables, x = given(module)
  starts = jnp.zeros((B, L), jnp.int32).at[1, 3].set(1)
  fresh = module.clone(plan=base.Plan(impl, chunk_length=4, fresh=True))
  none = impl != 'scan'
  assert (fresh.init_state(B).memory_BxHxKxD is None) == none
  run, zeros = jax.jit(fresh.apply), fresh.init_state(B)
  state, got = run(variables, zeros, x, starts)
  assert (state.memory_BxHxKxD is None) == none
  run, zeros = jax.jit(module.apply), module.init_state(B)
  _, want = run(variables, zeros, x, starts)
  # Measured: 0.
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-7)


def test_auto_is_pairs_for_short_rows():
  variables, x = given(cell())
  run = jax.make_jaxpr(cell().apply)
  short = run(variables, cell().init_state(B), x)
  assert 'scan' not in str(short)  # one product, no scan over chunks
  longer = jnp.concatenate([x] * 4, 1)
  assert 'scan' in str(run(variables, cell().init_state(B), longer))


def test_sees_row_has_no_state_and_no_documents():
  module = cell(sees='row')
  variables, x = given(module)
  assert module.init_state(B) is None
  with pytest.raises(ValueError, match="starts_BxL with sees='row'"):
    module.apply(variables, None, x, jnp.zeros((B, L), jnp.int32))


@pytest.mark.parametrize(
  ('key', 'value', 'message'),
  (
    ('cell.neurons', 3, 'cell.neurons=3: rotary angles rotate pairs'),
    ('cell.rotary', 1.0, 'cell.rotary=1.0: give a number above 1'),
    ('cell.weights', 'softmax', "it has no recurrent form: give 'linear'"),
    ('cell.sees', 'row', "rows of task.name='language_modeling' have padding"),
    ('cell.sees', 'all', "cell.sees='all': choose one of"),
    ('recurrence.impl', 'pallas', "model.cell='bdh' has"),
    ('recurrence.impl', 'state', "model.cell='bdh' has .*'associative'.$"),
    ('mesh.pipe', 2, 'not available with model.shared_layers=True'),
  ),
)
def test_bad_options_are_named(key, value, message):
  raw = config_lib.default('bdh')
  raw.model.shared_layers = True
  raw.update_from_flattened_dict({key: value})
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(raw)
