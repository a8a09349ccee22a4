"""Which form a plan runs, and what a row of it needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from tests.support import draws
from tests.support import loops

B, D = 2, 5
MLSTM = {'heads': 2, 'key_width': 3, 'value_width': 4}
BDH = {'heads': 2, 'neurons': 8, 'rotary': 100.0}


def made(name, options=(), **plan):
  module = config_lib.load('cells', name, 'model.cell')
  plan = base.Plan(**plan)
  return module.Cell(module.Config(**dict(options)), D, plan)


def traced(cell, length):
  x, state = jnp.zeros((B, length, cell.width)), cell.init_state(B)
  variables = jax.eval_shape(cell.init, jax.random.key(0), state, x)
  return jax.make_jaxpr(cell.apply)(variables, state, x)


@pytest.mark.parametrize(
  ('name', 'length', 'plan', 'turns'),
  (
    ('qrnn', 12, {'impl': 'chunked', 'chunk_length': 4}, [4, 3]),
    ('qrnn', 12, {'impl': 'associative'}, []),
    ('qrnn', 12, {'impl': 'scan'}, [12]),
    ('qrnn', 12, {'impl': 'associative', 'remat_every': 3}, [4]),
    ('simple_rnn', 96, {'impl': 'chunked', 'chunk_length': 96}, [1]),
    ('simple_rnn', 96, {'impl': 'chunked', 'remat_every': 32}, [3]),
    ('simple_rnn', 96, {'impl': 'chunked', 'remat_every': 8}, [12]),
    # 'sqrt' of 324 is 18: rounded up to whole blocks of 16.
    ('simple_rnn', 96, {'impl': 'chunked', 'remat_every': 18}, [3]),
    ('simple_rnn', 96, {'impl': 'scan', 'remat_every': 24}, [4]),
  ),
)
def test_the_plan_s_implementation_is_the_one_that_runs(
  name, length, plan, turns
):
  assert loops.lengths(traced(made(name, **plan), length).jaxpr) == turns


def test_chunks_of_several_inputs_a_step_count_steps():
  options = {'heads': 2, 'key_width': 4, 'value_width': 4, 'mimo_rank': 2}
  for plan in {'remat_every': 16}, {'chunk_length': 16}:
    cell = made('mamba3', options, impl='chunked', **plan)
    assert loops.lengths(traced(cell, 96).jaxpr) == [6]


@pytest.mark.parametrize('impl', ('exact', 'blocked'))
def test_attention_runs_the_plan_s_implementation(impl):
  options = {'heads': 1, 'head_width': 4, 'window': 16}
  jaxpr = traced(made('attention', options, impl=impl, chunk_length=4), 16)
  assert ('f32[2,1,16,16]' in str(jaxpr)) == (impl == 'exact')  # all scores


def test_bdh_s_auto_is_pairs_for_short_rows():
  cell = made('bdh', BDH, chunk_length=4)
  # One product, no scan over chunks.
  assert 'scan' not in str(traced(cell, 6))
  assert 'scan' in str(traced(cell, 24))


@pytest.mark.parametrize('impl', ('pairs', 'chunked'))
def test_rows_without_a_past_have_no_memory(impl):
  cell = made('bdh', BDH, impl=impl, chunk_length=4)
  fresh = made('bdh', BDH, impl=impl, chunk_length=4, fresh=True)
  zeros = fresh.init_state(B)
  assert zeros.memory_BxHxKxD is None
  x, starts = draws.normal(B, 6, D), np.zeros((B, 6), np.int32)
  starts[1, 3] = 1
  variables = draws.parameters(cell.init, cell.init_state(B), x)
  state, got = jax.jit(fresh.apply)(variables, zeros, x, starts)
  assert state.memory_BxHxKxD is None
  _, want = jax.jit(cell.apply)(variables, cell.init_state(B), x, starts)
  # Measured: 0.
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-7)


def test_a_scan_always_has_a_memory():
  cell = made('bdh', BDH, impl='scan', fresh=True)
  assert cell.init_state(B).memory_BxHxKxD is not None


def test_sees_row_has_no_state_and_no_documents():
  cell, x = made('bdh', BDH | {'sees': 'row'}), jnp.zeros((B, 6, D))
  assert cell.init_state(B) is None
  with pytest.raises(ValueError, match="starts_BxL with sees='row'"):
    starts = jnp.zeros((B, 6), jnp.int32)
    jax.eval_shape(cell.init, jax.random.key(0), None, x, starts)


@pytest.mark.slow
@pytest.mark.native
def test_mlstm_s_forms_equal_its_steps_for_any_gate():
  """Input gates from exp(-300) to exp(300), which float32 can't hold."""
  steps = made('mlstm', MLSTM, impl='scan')
  state, x = steps.init_state(2), 100 * draws.normal(2, 9, D)
  variables = draws.parameters(steps.init, state, x)
  raw = np.asarray(steps.apply(variables, x, method='project')['input'])
  assert raw.min() < -90 and raw.max() > 90
  want = jax.jit(steps.apply)(variables, state, x)[1]
  for impl in ('chunked', 'native'):
    cell = made('mlstm', MLSTM, impl=impl, chunk_length=4)
    got = jax.jit(cell.apply)(variables, state, x)[1]
    # Measured: 2e-5; m, about 300, is rounded to 3e-5.
    np.testing.assert_allclose(got, want, atol=1e-4 * abs(want).max())


def test_latent_attention_s_state_is_what_all_heads_share():
  sizes = {'shared_width': 4, 'kv_rank': 6, 'window': 4}
  state = made('latent_attention', sizes).init_state(B)
  assert [leaf.shape[1:] for leaf in state] == [(4, 1, 4), (4, 1, 6), ()]
