"""Gates, states and units against known values."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.inspection import activations
from rnn_jax.inspection import run
from rnn_jax.inspection import summary
from rnn_jax.models import blocks
from tests.inspection import made


def look(task, params, batch):
  return jax.device_get(activations.layers_of(task.model, params, batch))


def state_after(task, params, batch):
  """The state after a batch."""
  run = jax.jit(functools.partial(task.model.apply, method='features'))
  before = task.init_state(2)
  state, _ = run({'params': params}, before, batch.tokens_BxL, batch.starts_BxL)
  return state


def sigmoid(x):
  return 1 / (1 + np.exp(-np.asarray(x, float)))


@pytest.fixture(scope='module')
def known():
  """Two layers with gates from biases only, and one dead MLP unit."""
  config = made.config(
    model__mlp_width=4, model__mlp='relu', model__biases=True
  )
  task, params = made.task(config)
  blocks = params['stack']['blocks']
  cell, mlp = blocks['cell'], blocks['mlp']
  cell['projection']['kernel'] *= 0.0
  # Layer 0: heads at logits 0 and 5. Layer 1: all channels at -6.
  biases = [[0.0] * 3 + [5.0] * 3, [-6.0] * 6]
  cell['gate_bias'] = jnp.array(biases)
  # Unit 2 of layer 0 is always off, all others always on.
  mlp['up']['kernel'] *= 0.0
  mlp['up']['bias'] = jnp.array([[1.0, 1.0, -1.0, 1.0], [1.0] * 4])
  batch = made.batch((9, 5))
  seen = look(task, params, batch)
  return [seen, seen], config


def test_gates_are_what_their_biases_say(known):
  first, second = summary.gates(known[0])
  assert (first['layer'], first['gate']) == (0, 'keep')
  low, high = sigmoid(0), sigmoid(5)
  assert first['mean'] == pytest.approx((low + high) / 2, rel=1e-5)
  # A bin is 1/32 wide in the logit, at most 1/128 in the value.
  assert first['low'] == pytest.approx(low, abs=1 / 128)
  assert first['high'] == pytest.approx(high, abs=1 / 32 * high * (1 - high))
  assert first['above'] == 0.5 and first['below'] == 0
  assert second['mean'] == pytest.approx(sigmoid(-6), rel=1e-5)
  assert second['below'] == 1 and second['above'] == 0
  assert second['bins'].sum() == 2 * 14 * 6  # batches, real tokens, channels


def test_half_lives_are_those_of_the_decay(known):
  first, second = summary.half_lives(known[0])
  assert first['channels'] == 6
  for key, logit in (('low', 0), ('high', 5)):
    want = np.log(0.5) / np.log(sigmoid(logit))
    assert first[key] == pytest.approx(want, rel=1e-4)
  want = np.log(0.5) / np.log(sigmoid(-6))
  assert second['median'] == pytest.approx(want, rel=1e-4)


def test_what_never_decays_has_an_infinite_half_life():
  layer = activations.Layer({}, np.zeros(3), {}, np.ones(4), {})
  (row,) = summary.half_lives([[layer]])
  assert row['low'] == row['high'] == np.inf
  mixed = layer._replace(loga=np.array([0.0, 4 * np.log(0.5), -np.inf]))
  (row,) = summary.half_lives([[mixed]])
  assert (row['low'], row['median'], row['high']) == (0, 1, np.inf)


def test_a_unit_that_its_weights_keep_at_zero_is_dead(known):
  first, second = summary.units(known[0], known[1].model)
  assert (first['dead'], first['which'], first['units']) == (1, [2], 4)
  assert first['of'] == 'mlp'
  assert first['at_rest'] == pytest.approx(0.25)
  assert second['dead'] == 0 and second['at_rest'] == 0


def test_a_smooth_unit_is_dead_below_a_small_number():
  units = activations.Units(np.array([1e-7, 1e-3, 0.0]), 8)
  layer = activations.Layer(
    {}, None, {}, np.ones(4), {'mlp': units, 'cell': units}
  )
  smooth = made.config(model__mlp='gelu').model
  sharp = made.config(model__mlp='relu').model
  for config, of_mlp in ((smooth, [0, 2]), (sharp, [2])):
    rows = summary.units([[layer]], config)
    dead = {row['of']: row['which'] for row in rows}
    assert dead == {'mlp': of_mlp, 'cell': [2]}


def test_the_load_of_experts_is_that_of_real_tokens():
  config = made.config(model__mlp_width=8)
  config = dataclasses.replace(
    config,
    model=dataclasses.replace(
      config.model, experts=config_lib.Experts(3, per_token=1)
    ),
  )
  task, params = made.task(config)
  # The logits of the router are 0, so that each token chooses the first expert.
  router = params['stack']['blocks']['experts']['router']
  router['kernel'] = jnp.zeros_like(router['kernel'])
  rows = summary.loads([look(task, params, made.batch((9, 4)))] * 2)
  assert rows == [
    {'layer': n, 'experts': 3, 'least': 0.0, 'most': 3.0, 'idle': 2}
    for n in range(config.model.layers)
  ]
  (first, *_) = look(task, params, made.batch((9, 4)))
  np.testing.assert_array_equal(first.load, [13, 0, 0])
  assert summary.units([[first]], config.model) == []


def test_the_norm_of_a_state_is_that_of_the_model_s_final_state():
  config = made.config(cell__convolution=3)
  task, params = made.task(config)
  batch = made.batch((9, 9))
  rows = summary.states([look(task, params, batch)])
  _, (_, state) = state_after(task, params, batch)
  for row in rows:
    leaf = {'memory': state.memory_BxHxKxP, 'inputs': state.inputs}
    whole = np.asarray(leaf[row['state']][row['layer']], float)
    want = np.sqrt(np.mean(np.sum(whole.reshape(2, -1) ** 2, 1)))
    assert len(row['norms']) == 9
    # Measured: 3e-7.
    assert row['last'] == pytest.approx(want, rel=1e-5)
  assert {row['state'] for row in rows} == {'memory', 'inputs'}


def test_each_layer_of_a_hybrid_is_seen_as_its_cell():
  config = made.config(
    ('rwkv7', 'attention'),
    model__layers=4,
    model__mlp='channel_mix',
    model__mlp_width=4,
    cell__rwkv7={'value_residual': True},
  )
  task, params = made.task(config)
  batch = made.batch((9, 9))
  seen = look(task, params, batch)
  of_layers = [row['layer'] for row in summary.gates([seen])]
  assert of_layers == [0, 0, 2, 2]  # keep and write
  _, (_, ((state, _), _)) = state_after(task, params, batch)
  last = {
    (row['layer'], row['state']): row['last'] for row in summary.states([seen])
  }
  assert {*last} == {
    *((n, name) for n in (0, 2) for name in ('memory', 'input')),
    *((n, name) for n in (1, 3) for name in 'kv'),
  }
  for n, whole in enumerate(np.asarray(state.memory_BxHxKxP, float)):
    want = np.sqrt(np.mean(np.sum(whole.reshape(2, -1) ** 2, 1)))
    assert last[2 * n, 'memory'] == pytest.approx(want, rel=1e-5)


def test_gates_of_an_lstm_are_those_of_its_equations():
  config = made.config('lstm', model__block='plain', model__layers=1)
  task, params = made.task(config)
  batch = made.batch((7, 3), steps=7)
  (layer,) = look(task, params, batch)
  weights = jax.tree.map(
    lambda x: np.asarray(x[0], float), params['stack']['blocks']['cell']
  )
  embedding = np.asarray(params['embedding']['embedding'], float)
  h = c = np.zeros((2, 6))
  total, loga = dict.fromkeys(('write', 'keep', 'read'), 0), 0
  for t in range(7):
    real = batch.weights_BxL[:, t, None]
    raw = embedding[batch.tokens_BxL[:, t]] @ weights['projection']['kernel']
    raw = (
      raw + weights['projection']['bias'] + h @ weights['recurrent']['kernel']
    )
    i, f, g, o = np.split(raw, 4, -1)
    for name, x in (('write', i), ('keep', f), ('read', o)):
      total[name] += np.sum(real * sigmoid(x))
    loga = loga + np.sum(real * np.log(sigmoid(f)), 0)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
  for row in summary.gates([[layer]]):
    assert row['mean'] == pytest.approx(total[row['gate']] / 60, rel=1e-5)
  np.testing.assert_allclose(layer.loga, loga, rtol=1e-5)


@pytest.fixture(scope='module')
def dragon():
  """(config, task, parameters) of shared layers, 2 of 16 neurons dead."""
  raw = importlib.import_module('configs.bdh').get_config('small')
  raw.model.update(width=6, layers=3)
  raw.cell.update(heads=2, neurons=8)
  raw.data.update(length=8, batch_size=2)
  config = run.plain(config_lib.parse(raw))
  task, params = made.task(config)
  encoder = params['stack']['shared']['cell']['encoder']
  encoder['kernel'][:, [3, 12]] = 0
  return config, task, jax.device_put(params)


def test_layers_that_share_their_parameters_are_seen_one_by_one(dragon):
  config, task, params = dragon
  batch = made.batch((9, 5))
  seen = look(task, params, batch)
  shared = params['stack']['shared']
  block = blocks.Block(
    config.model, config.cell, base.Plan(), task.model.policy, parent=None
  )

  @jax.jit
  def neurons():
    """s = relu(x E) of each pass, BxLxHK."""
    _, x = task.model.apply(
      {'params': params}, None, batch.tokens_BxL, method='read'
    )
    outputs = []
    for _ in range(3):
      outputs.append(jax.nn.relu(x @ shared['cell']['encoder']['kernel']))
      state = blocks.make_cell(block, parent=None).init_state(2)
      x, _ = block.apply({'params': shared}, x, state, batch.starts_BxL)
    return outputs

  rows = summary.units([seen], config.model)
  assert [(row['layer'], row['of']) for row in rows] == [
    (n, 'cell') for n in range(3)
  ]
  real = np.arange(9)[None] < np.array([[9], [5]])
  for row, whole in zip(rows, jax.device_get(neurons()), strict=True):
    s = whole[real]
    assert row['units'] == 16 and {3, 12} <= {*row['which']}
    assert row['which'] == [*np.flatnonzero(~s.any(0))]
    assert row['at_rest'] == pytest.approx(np.mean(s == 0), abs=0.01)
  assert not summary.gates([seen])
  # Counters are none of the state's parts.
  assert {row['state'] for row in summary.states([seen])} == {'memory'}
