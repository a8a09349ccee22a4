"""What gates and scales are before the first step of training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from tests.cells.equations import common

D = 5


def made(name, **options):
  """A cell of a width of D."""
  module = config_lib.load('cells', name, 'model.cell')
  return module.Cell(module.Config(**options), D)


def initial(name, **options):
  """A cell's parameters at the start."""
  cell, x = made(name, **options), np.zeros((1, 1, D), np.float32)
  run = jax.jit(cell.init)
  return run(jax.random.key(0), cell.init_state(1), x)['params']


@pytest.mark.parametrize(
  ('name', 'options', 'biases'),
  (
    ('min_lstm', {'forget_bias': 2.0}, (2, 0, 0)),
    ('lstm', {'forget_bias': 2.0}, (0, 2, 0, 0)),
    ('gru', {'keep_bias': 2.0}, (0, 2, 0)),
    ('slstm', {'forget_bias': 2.0}, (0, 2, 0, 0)),
    ('qrnn', {'forget_bias': 2.0, 'pooling': 'ifo'}, (0, 2, 0, 0)),
  ),
)
def test_a_cell_begins_with_a_high_gate(name, options, biases):
  want = np.repeat(np.float64(biases), D)
  cell = made(name, **options)
  np.testing.assert_array_equal(cell.init_biases(None, want.shape), want)


def test_an_exponential_forget_gate_begins_as_a_sigmoid_one():
  cell = made('slstm', forget_gate='exponential', forget_bias=2.0)
  _, f, *others = np.split(np.asarray(cell.init_biases(None, (4 * D,))), 4)
  np.testing.assert_allclose(np.exp(f), common.sigmoid(2.0), 1e-6)
  assert not np.any(others)


def test_each_layer_of_an_rhn_begins_by_carrying():
  params = initial('rhn', depth=2, transform_bias=-3.0)
  want = np.repeat([0.0, -3.0], D)
  for name in ('projection', 'recurrents_1'):
    np.testing.assert_array_equal(params[name]['bias'], want)
  assert 'bias' not in params['recurrents_0']


@pytest.mark.parametrize('name', ['gated_deltanet', 'kda', 'rwkv7'])
def test_rows_of_the_state_begin_by_forgetting_slowly_and_fast(name):
  options = {'heads': 64, 'key_width': 4, 'value_width': 4}
  cell = made(name, **options)
  x = np.zeros((1, 1, D), np.float32)

  @jax.jit
  def gates(key):
    params = cell.init(key, cell.init_state(1), x)
    u = cell.apply(params, x, method='project')
    state, u = cell.init_state(1), jax.tree.map(lambda u: u[:, 0], u)
    return cell.apply(params, state, u, method='gates')

  keep = np.asarray(gates(jax.random.key(0)).values['keep'])
  assert keep.min() < 0.75 and keep.max() > 0.99 and keep.min() > 0.1


def test_mamba_starts_as_published():
  params = initial('mamba', key_width=3)
  np.testing.assert_allclose(params['log_rate'], np.log([[1, 2, 3]] * 2 * D))
  dt = common.softplus(np.float64(params['dt_bias']))
  assert dt.min() >= 0.99e-3 and dt.max() <= 0.101
  assert params['selection']['kernel'].shape == (2 * D, 1 + 2 * 3)
  assert abs(params['dt']['kernel']).max() <= 1


@pytest.mark.parametrize(
  ('options', 'each'),
  (
    ({'heads': 3, 'key_width': 2}, 2),
    ({'heads': 3, 'key_width': 2, 'decay': 'head'}, 1),
    ({'preset': 'coupled', 'key_width': 3}, 1),  # of keys
  ),
)
def test_gates_start_spread_from_fast_to_slow(options, each):
  cell = made('simple_rnn', gate_bias=2.0, **options)
  x, state = jnp.zeros((1, 1, D)), cell.init_state(1)
  gates = jax.jit(lambda key: cell.init(key, state, x)['params']['gate_bias'])
  want = np.repeat([0.0, 2.0, 4.0], each)
  np.testing.assert_array_equal(gates(jax.random.key(0)), want)


def test_the_matrices_of_latent_attention_are_not_zeros():
  params = initial('latent_attention', window=4)
  for name in ('query', 'latent', 'expand', 'output'):
    assert params[name]['kernel'].any()
