"""Norms of gradients and updates against plain computations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.inspection import anatomy
from rnn_jax.inspection import gradients
from rnn_jax.training import programs as programs_lib
from tests.inspection import made

RATE, DECAY = 0.01, 0.1


@pytest.fixture(scope='module')
def measured():
  """(programs, state, batch, gradients and updates) of a first step."""
  config = made.config(
    model__block='plain',
    model__mlp_width=0,
    optimizer__learning_rate=RATE,
    optimizer__weight_decay=DECAY,
    optimizer__clip_norm=0.0,
  )
  programs = programs_lib.from_config(
    config, made.TOKENIZER, jax.local_devices()[:1]
  )
  state, batch = programs.states.init(2), made.batch((9, 4))
  return programs, state, batch, programs.compute_gradients(state, batch)


def test_gradients_of_each_layer_are_those_of_the_mean_loss(measured):
  programs, state, batch, (slopes, _, _) = measured

  @jax.jit
  def plain(params):
    """The mean loss, from the logits."""
    model = programs.task.model
    before = model.apply({}, 2, method='init_state')
    _, logits = model.apply(
      {'params': params}, before, batch.tokens_BxL, batch.starts_BxL
    )
    logp = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(logp, batch.targets_BxL[..., None], -1)
    return -jnp.sum(picked[..., 0] * batch.weights_BxL) / 13

  want = jax.jit(jax.grad(plain))(state.params)
  parts = jax.device_get(gradients.norms(slopes))
  assert parts.keys() == {'embedding', 'layer 0', 'layer 1', 'head'}
  for n in range(2):
    blocks = want['stack']['blocks']
    for path, whole in jax.tree.leaves_with_path(blocks):
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      norm = np.linalg.norm(np.asarray(whole[n], float))
      # Measured: 1.4e-6.
      assert parts[f'layer {n}'][name] == pytest.approx(norm, rel=1e-5)
  norm = np.linalg.norm(np.asarray(want['head']['kernel'], float))
  assert parts['head']['kernel'] == pytest.approx(norm, rel=1e-5)


def test_a_ratio_is_that_of_the_step_that_adamw_would_make(measured):
  _, state, _, (slopes, updates, _) = measured
  rows, names = gradients.describe(
    state.params, [gradients.norms(slopes)], [gradients.norms(updates)]
  )
  slopes, weights = (
    jax.device_get(anatomy.parts(tree)) for tree in (slopes, state.params)
  )
  for row in names:
    g = slopes[row['part']][row['name']].astype(float)
    w = weights[row['part']][row['name']].astype(float)
    decay = DECAY * row['name'].endswith('kernel')
    # Of a first step the moments, their bias corrected, are g and g^2.
    update = RATE * (g / (np.abs(g) + 1e-8) + decay * w)
    norm = np.linalg.norm(w)
    assert row['update_norm'] == pytest.approx(np.linalg.norm(update), rel=1e-4)
    assert row['gradient_norm'] == pytest.approx(np.linalg.norm(g), rel=1e-5)
    if norm:
      assert row['ratio'] == pytest.approx(
        np.linalg.norm(update) / norm, rel=1e-4
      )
    else:
      assert row['ratio'] is None
  layer = next(row for row in rows if row['part'] == 'layer 1')
  own = [row for row in names if row['part'] == 'layer 1']
  together = np.linalg.norm([row['weight_norm'] for row in own])
  assert layer['weight_norm'] == pytest.approx(together)
  assert layer['parameters'] == sum(row['parameters'] for row in own)


def test_inspecting_a_step_leaves_its_state_unchanged(measured):
  programs, state, batch, (_, updates, sums) = measured
  before = jax.device_get(state.params)
  changed, values = programs.train_step(jax.tree.map(jnp.copy, state), batch)
  assert float(sums['loss']) == pytest.approx(float(values['sums']['loss']))
  for a, b, change in zip(
    *map(jax.tree.leaves, (before, changed.params, updates)), strict=True
  ):
    np.testing.assert_allclose(a + np.asarray(change), b, rtol=0, atol=1e-6)


def test_norms_of_batches_are_averaged():
  head = {'kernel': jnp.array([3.0, 4.0]), 'bias': jnp.zeros(2)}
  params = {'head': head, 'stack': {}}
  norms = [{'head': {'kernel': x, 'bias': y}} for x, y in ((3, 4), (0, 1))]
  (row,), names = gradients.describe(params, norms, norms[:1])
  assert row['gradient_norm'] == 3 and row['gradient_norm_largest'] == 5
  assert row['update_norm'] == 5 and row['ratio'] == 1
  assert {x['name']: x['ratio'] for x in names} == {'bias': None, 'kernel': 0.6}
