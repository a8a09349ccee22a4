"""What stands beside our model computes what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.subjects import attention
from benchmarks.subjects import cells
from benchmarks.subjects import gradient_flow
from benchmarks.subjects import models
from benchmarks.subjects import operators
from benchmarks.subjects import trained
from benchmarks.subjects import transformer
from benchmarks.subjects import variants
from benchmarks.suites import cells as suite
from configs import recall
from configs import tiny_shakespeare
from rnn_jax import config as config_lib
from rnn_jax.cells import simple_rnn
from rnn_jax.data import tokenizer
from rnn_jax.inspection import curves
from rnn_jax.inspection import flow
from rnn_jax.tasks import language_modeling

CONFIG = simple_rnn.Config(preset='simple', heads=1, key_width=4, value_width=6)


def run(cell, x):
  """The outputs of a cell class with one and the same set of parameters."""
  like = simple_rnn.Cell(CONFIG, width=5)
  params = like.init(jax.random.key(0), like.init_state(2), x)
  made = cell(CONFIG, width=5)
  return made.apply(params, made.init_state(2), x)


def test_an_unrolled_scan_is_the_same_recurrence():
  x = jax.random.normal(jax.random.key(1), (2, 11, 5))
  got, want = (
    run(c, x) for c in (variants.cell('unrolled_4'), simple_rnn.Cell)
  )
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_without_recurrence_each_step_is_alone_and_reads_all_inputs():
  cell = variants.cell('without_recurrence')
  x = jax.random.normal(jax.random.key(1), (2, 7, 5))
  jacobian = jax.jacobian(lambda x: run(cell, x)[1][0, :, 0])(x)[:, 0]
  across = np.abs(jacobian).sum(-1)
  assert np.all((across > 0) == np.eye(7, dtype=bool))
  like = simple_rnn.Cell(CONFIG, width=5)
  params = like.init(jax.random.key(0), like.init_state(2), x)

  def total(params):
    made = cell(CONFIG, width=5)
    return jnp.sum(made.apply(params, made.init_state(2), x)[1] ** 2)

  for gradient in jax.tree.leaves(jax.grad(total)(params)):
    assert np.any(gradient != 0)


@pytest.mark.parametrize('length', (3, 8, 21))
def test_a_window_in_blocks_is_a_mask(length):
  q, k, v = jax.random.normal(jax.random.key(0), (3, 2, length, 5))
  window = 4
  got = attention.attend(q, k, v, window)
  apart = np.arange(length)[:, None] - np.arange(length)
  scores = np.einsum('bia,bja->bij', q, k) / np.sqrt(5)
  weights = np.where((apart >= 0) & (apart < window), np.exp(scores), 0)
  weights /= weights.sum(-1, keepdims=True)
  np.testing.assert_allclose(got, weights @ np.float64(v), rtol=1e-4, atol=1e-6)


def test_blocks_of_attention_are_compared_with_all_scores_at_once():
  found = operators.attention_difference(1, [1, 150, 1, 4, 6])['differences']
  assert [*found] == ['y', 'q', 'k', 'v']
  assert 0 < max(found.values()) < 1e-5


def test_a_transformer_s_step_is_counted_and_not_run():
  given = {'config': 'chatgot', 'argument': 'tiny', 'batch': 2}
  plain, small = (
    transformer.step_memory(1, **given, overrides=changed)
    for changed in ({}, {'optimizer.moments': 'int8', 'remat.layers': 1})
  )
  assert plain['weights'] == small['weights'] == 419_673
  assert plain['parameter_bytes'] == 4 * 419_673
  assert plain['optimizer_bytes'] > 8 * 419_673 > 3 * small['optimizer_bytes']
  assert small['total_bytes'] < plain['total_bytes']


def test_the_gradient_of_the_last_loss_reaches_as_far_as_the_model():
  raw = trained.raw_config('attention, window 32')
  raw.model.width = 8
  raw.cell.update(heads=1, head_width=4, window=2)
  task = language_modeling.make(config_lib.parse(raw), tokenizer.Bytes())
  tokens = np.random.default_rng(0).integers(0, 11, (3, 13))
  params = task.init_parameters(jax.random.key(0))
  batch = gradient_flow._batch(tokens)
  norms = curves.norms([flow.sums(task, params, batch)])
  assert norms.shape == (12,)
  # Two layers that each see two steps back reach four.
  assert np.all(norms[:5] > 1e-4) and not norms[5:].any()


def test_the_operations_of_a_step_are_counted():
  config = models.config({}, batch=2, length=3)
  # By hand: 2 D (3K + P), 5 K P, 2 P D a layer; 2 D V for the head; times 3.
  layer = 2 * 128 * 160 + 5 * 32 * 64 + 2 * 64 * 128
  assert models.training_flops(config, 2, 3) == 3 * 6 * (
    2 * layer + 2 * 128 * 512
  )


def test_a_cell_gets_as_many_weights_as_the_reference(monkeypatch):
  get = tiny_shakespeare.get_config
  narrow = {'model.width': 16}
  wanted = cells.weights(cells.sized(get, cells.REFERENCE, '', narrow))
  raw = cells.sized(get, 'gru', 'state_width', narrow)
  assert abs(cells.weights(raw) - wanted) <= 0.02 * wanted
  raw.cell.state_width += 3
  assert abs(cells.weights(raw) - wanted) > 0.02 * wanted
  monkeypatch.setattr(cells, 'WIDEST', 3)
  with pytest.raises(RuntimeError, match='gru: .* weights, not about'):
    cells.sized(get, 'gru', 'state_width', narrow)


@pytest.mark.parametrize('subject', ('cells.training', 'cells.recall'))
def test_the_dragon_hatchling_stands_in_its_own_block(subject):
  listed = {case.name: case for case in suite.cases(False)}
  config = {
    'cells.training': tiny_shakespeare.get_config,
    'cells.recall': recall.get_config,
  }[subject]
  what = subject.partition('.')[2]
  given = listed[f'bdh, normed: {what}, 0.001'].parameters
  assert listed[f'bdh, normed: {what}, 0.001'].subject == subject
  raw = cells.sized(config, given['cell'], given['size'], given['overrides'])
  wanted = cells.weights(config(cells.REFERENCE))
  assert abs(cells.weights(raw) - wanted) <= 0.03 * wanted
  parsed = config_lib.parse(raw)
  assert parsed.model.block == 'normed' and not parsed.data.carry_state
  assert parsed.optimizer.learning_rate == 1e-3
  # The reference and the config's own rate are as they were.
  assert 'overrides' not in listed[f'gru: {what}'].parameters
  assert config('gru').optimizer.learning_rate == suite.RATES[0]


def test_a_curve_has_the_means_between_its_points():
  assert cells._curve([1.0, 3.0]) == [[1, 1.0], [2, 3.0]]
  curve = cells._curve([float(n) for n in range(43)])
  assert curve[:2] == [[3, 1.0], [6, 4.0]] and curve[-1][0] == 42
