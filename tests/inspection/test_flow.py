"""Gradients by distance against plain computations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.inspection import curves
from rnn_jax.inspection import flow
from tests.inspection import made


def test_gradients_are_those_of_the_last_loss_by_what_the_first_layer_reads():
  task, params = made.task(made.config())
  model = task.model
  batch = made.batch((9, 6, 0))
  batch.starts_BxL[0, 4] = 1  # a second document in the first row
  last = [8, 5]

  def loss(model, x_BxLxD):
    _, x = model.stack(model.stack.init_state(3), x_BxLxD, batch.starts_BxL)
    kernel, bias = model.head_weights()
    logp = jax.nn.log_softmax(model.norm(x) @ kernel + bias[None, None])
    return -sum(logp[b, t, batch.targets_BxL[b, t]] for b, t in enumerate(last))

  variables = {'params': params}
  x = model.apply(variables, batch.tokens_BxL, method='embed')
  slopes = jax.jit(jax.grad(lambda x: model.apply(variables, x, method=loss)))(
    x
  )
  size = np.linalg.norm(np.asarray(slopes, float), axis=-1)
  got = curves.norms([flow.sums(task, params, batch)])
  assert not size[0, :4].any()  # the other document's
  want = [size[1, 5 - d] ** 2 for d in range(6)]
  for d in range(5):
    want[d] = (want[d] + size[0, 8 - d] ** 2) / 2
  # Measured: 6e-7.
  np.testing.assert_allclose(got, np.sqrt(want), rtol=1e-5)


def test_a_class_reaches_back_to_the_words_it_was_read_from():
  config = made.config(
    task__name='classification', data__classes=('a', 'b'), model__layers=1
  )
  task, params = made.task(config)
  batch = made.batch((7,), steps=7)
  tokens = np.arange(7, dtype=np.int32)[None]  # each one once
  targets = batch.targets_BxL.copy()
  targets[0, -1] = made.TOKENIZER.size + 1
  batch = batch._replace(tokens_BxL=tokens, targets_BxL=targets)

  @jax.jit
  def loss(params):
    state = task.init_state(1)
    _, logits = task.model.apply(
      {'params': params}, state, batch.tokens_BxL, batch.starts_BxL
    )
    return -jax.nn.log_softmax(logits[0, -1])[1]

  table = jax.grad(loss)(params)['body']['embedding']['embedding']
  want = np.linalg.norm(np.asarray(table, float), axis=-1)[:7][::-1]
  got = curves.norms([flow.sums(task, params, batch)])
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_curves_of_batches_count_the_rows_that_reach():
  parts = [
    (jnp.array([4.0, 8.0]), jnp.array([1.0, 2.0])),
    (jnp.array([0.0, 1.0, 9.0, 0.0]), jnp.array([1.0, 1.0, 1.0, 0.0])),
  ]
  np.testing.assert_allclose(curves.norms(parts), np.sqrt([2, 3, 9]))


def test_octaves_end_where_the_curve_does():
  octaves = curves.octaves([7.0, 1.0, 3.0, 4.0, 5.0])
  assert octaves == {
    1: 1,
    2: pytest.approx(np.sqrt(12.5)),
    4: 5,
  }
